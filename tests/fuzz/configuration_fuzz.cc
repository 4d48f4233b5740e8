// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_target.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/config/settings.h"
#include "rule_table.h"

namespace config = inductorfs::config;
namespace fuzz = inductorfs::fuzz;
namespace layout = inductorfs::layout;
using inductorfs::ErrorCode;

namespace {

constexpr std::string_view kPaths[] = {"ab/x/y/z.bin", "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a", "x", "triton/@/k.cubin"};

/// The file lies in memory: read_configuration() takes a path.
config::Configuration* read(std::string_view text, std::string& what) {
  static config::Configuration configuration;
  const inductorfs::Fd file(::memfd_create("configuration", MFD_CLOEXEC));
  INDUCTORFS_CHECK(file && inductorfs::write_full(file.get(), text).has_value());
  auto found = config::read_configuration("/proc/self/fd/" + std::to_string(file.get()));
  if (!found) {
    what = found.error().what();
    INDUCTORFS_CHECK(found.error().code() == ErrorCode::kInvalid);
    return nullptr;
  }
  configuration = std::move(*found);
  return &configuration;
}

}  // namespace

/// The configuration file, the values of its options, and its rules of families.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string what;
  const config::Configuration* configuration = read(fuzz::view(data, size), what);
  for (const char c : what) INDUCTORFS_CHECK(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
  if (configuration == nullptr) return 0;
  config::Settings settings;
  if (const auto applied = config::apply(configuration->values, "file", "/base", settings); !applied) {
    INDUCTORFS_CHECK(applied.error().code() == ErrorCode::kInvalid);
  }
  const auto table = layout::RuleTable::make(configuration->families);
  if (!table) {
    INDUCTORFS_CHECK(table.error().code() == ErrorCode::kInvalid && !table.error().what().empty());
    return 0;
  }
  for (const std::string_view path : kPaths) (void)(*table)->configured_family(path);  // whichever it is
  return 0;
}
