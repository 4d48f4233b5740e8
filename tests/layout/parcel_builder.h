// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "inductorfs/base/encoding.h"
#include "inductorfs/codec/parcel.h"

/// Parcels, and what lies in those of serving engines, with exactly what a test asks for.
namespace inductorfs::layout::samples {

using Contents = std::map<std::string, std::string>;

inline std::string parcel_of(const Contents& contents) {
  std::vector<codec::ParcelItem> items;
  std::string bodies;
  for (const auto& [path, body] : contents) {
    const bool directory = path.ends_with('/');
    items.push_back({directory ? path.substr(0, path.size() - 1) : path, directory, 0644, 1, body.size()});
    bodies += body;
  }
  const auto head = codec::encode_parcel_head(items);
  return head ? *head + bodies : std::string();
}

/// torch.utils._appending_byte_serializer.BytesWriter
inline std::string pieces(const std::vector<std::string>& texts) {
  const auto big_endian = [](uint64_t number, int bytes) {
    std::string out;
    for (int i = bytes; i > 0; --i) out.push_back(static_cast<char>(number >> (8 * (i - 1))));
    return out;
  };
  std::string out;
  for (const std::string& text : texts) out += big_endian(text.size(), 8) + text;
  return big_endian(crc32(out), 4) + out;
}

/// As CacheCompiledArtifact.save writes it.
inline std::string compiled_artifact(const std::string& content = "graph") {
  return pieces({"CacheCompiledArtifact", std::string(32, 'k'), "YWJj", content});
}

inline const std::string kArtifact = "artifact_compile_range_1_128_subgraph_";

/// As CompilerManager.save_to_file writes it since vLLM 0.19, for the first graphs of a model.
inline std::string index_of(const std::string& directory, int graphs) {
  std::string text = "{";
  for (int i = 0; i < graphs; ++i) {
    const std::string name = kArtifact + std::to_string(i);
    text += (i == 0 ? "   " : ",\n    ") + std::string("((1, 128), ") + std::to_string(i) +
            ", 'inductor_standalone'): {   'cache_key': 'arq6hoj7',\n        'graph_handle': (   '" + name +
            "',\n            '" + directory + "/" + name + "')}";
  }
  return text + "}";
}

}  // namespace inductorfs::layout::samples
