// SPDX-License-Identifier: Apache-2.0
#include "trust/wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "inductorfs/base/trusted_file.h"

namespace inductorfs::trust {
namespace {

constexpr size_t kArmourWidth = 70;
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock ends it with a NUL
  text.resize(static_cast<size_t>(EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                                  reinterpret_cast<const unsigned char*>(bytes.data()),
                                                  static_cast<int>(bytes.size()))));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  // EVP_DecodeBlock takes blanks at both ends, and counts the padding as bytes.
  const size_t letters = std::min(text.find_first_not_of(kAlphabet), text.size());
  const size_t padding = text.size() - letters;
  if (text.empty() || text.size() % 4 != 0 || padding > 2 || text.find_first_not_of('=', letters) != text.npos)
    return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) return {};
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

std::string to_armour(std::string_view bytes, std::string_view what) {
  const SecretBytes text(to_base64(bytes));
  std::string lines;
  lines.reserve(text.bytes.size() + text.bytes.size() / kArmourWidth + 2 * what.size() +
                64);  // it may be a secret: never moved
  lines.append("-----BEGIN ").append(what).append("-----\n");
  for (size_t at = 0; at < text.bytes.size(); at += kArmourWidth) {
    lines.append(text.bytes, at, kArmourWidth).append("\n");
  }
  lines.append("-----END ").append(what).append("-----\n");
  return lines;
}

SecretBytes::~SecretBytes() {
  bytes.resize(bytes.capacity());  // what it had before it was made shorter
  OPENSSL_cleanse(bytes.data(), bytes.size());
}

Result<std::string> read_trusted_list(std::string_view what, const std::string& path, uint64_t limit) {
  auto text = read_trusted_file(path, limit);
  if (text) return text;
  const bool is_absent = text.error().code() == ErrorCode::kNotFound;
  return fail(
      std::move(text).error().with_context(std::string(what) + (is_absent ? " " + path + ": it does not exist" : "")));
}

size_t line_with_return(std::string_view text) {
  const size_t at = text.find('\r');
  return at == text.npos
             ? 0
             : static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n')) + 1;
}

}  // namespace inductorfs::trust
