// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/signing_key.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/base/text.h"
#include "inductorfs/base/trusted_file.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

using PrivateHandle = Handle<EVP_PKEY, EVP_PKEY_free>;

constexpr std::string_view kArmour = "OPENSSH PRIVATE KEY";
constexpr std::string_view kBegin = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
constexpr std::string_view kEnd = "-----END OPENSSH PRIVATE KEY-----";
constexpr std::string_view kMagic{"openssh-key-v1\0", 15};
constexpr size_t kSeedSize = 32;
constexpr size_t kPaddedTo = 8;
constexpr size_t kSignatureSize = 64;

tl::unexpected<Error> bad_key(const std::string& name, std::string_view why) {
  return fail(ErrorCode::kInvalid, "signing key " + name + ": " + std::string(why));
}

/// What the file is instead, in words; nothing if it begins as it should.
std::string_view other_kind(std::string_view text) {
  if (text.empty()) return "the file is empty: make a key with inductorfs key generate FILE";
  if (line_with_return(text) != 0) {
    return "its lines end with carriage returns: copy the file as binary, or run sed -i 's/\\r$//' on it";
  }
  if (text.starts_with(kBegin)) return {};
  if (text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-")) {
    return "this is a public key or a certificate: name the private file, which has the same name without .pub";
  }
  if (text.starts_with("---- BEGIN SSH2") || text.starts_with("-----BEGIN PUBLIC")) {
    return "this is a public key: name the private file";
  }
  if (text.starts_with("-----BEGIN ")) {
    return "this is a key in a form of PEM or PKCS#8, and only OpenSSH's own form is read: make a key with inductorfs "
           "key "
           "generate FILE, or ssh-keygen -t ed25519 -N '' -f FILE";
  }
  return "this is no private key of OpenSSH: make one with inductorfs key generate FILE";
}

/// The private section: two equal numbers, the key, a comment, and the padding 1, 2, 3...
bool read_private(std::string_view section, const PublicKey& key, std::string_view& seed, std::string& comment) {
  WireReader reader(section);
  const uint32_t check = reader.number();
  if (check != reader.number() || reader.string() != kKeyType || reader.string() != key.raw()) return false;
  const std::string_view pair = reader.string();
  comment = reader.string();
  for (uint8_t next = 1; reader.more(); ++next) {
    if (reader.byte() != next || next >= kPaddedTo) return false;
  }
  if (reader.failed() || section.size() % kPaddedTo != 0 || pair.size() != kSeedSize + PublicKey::kSize) return false;
  seed = pair.substr(0, kSeedSize);
  return pair.substr(kSeedSize) == key.raw();
}

PrivateHandle private_of(std::string_view seed) {
  return PrivateHandle(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr,
                                                    reinterpret_cast<const unsigned char*>(seed.data()), seed.size()));
}

PublicKey public_of(EVP_PKEY* key) {
  PublicKey made;
  size_t size = made.bytes.size();
  INDUCTORFS_CHECK(EVP_PKEY_get_raw_public_key(key, made.bytes.data(), &size) == 1 && size == made.bytes.size());
  return made;
}

std::string absolute(const std::string& path) {
  std::array<char, PATH_MAX> here{};
  if (path.starts_with('/') || ::getcwd(here.data(), here.size()) == nullptr) return path;
  return std::string(here.data()) + "/" + path;
}

Result<std::string> read_secret(const std::string& path) {
  constexpr int kHow = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  auto file = open_at(AT_FDCWD, path, kHow);
  if (!file && file.error().code() == ErrorCode::kNotFound) {
    return fail(ErrorCode::kNotFound,
                "signing key " + path + ": it does not exist: make one with inductorfs key generate " + path);
  }
  if (!file) {
    return file.error().code() == ErrorCode::kInvalid
               ? bad_key(path, "this is a symbolic link: name the file that it leads to")
               : fail(file.error());
  }
  struct stat found {};
  if (::fstat(file->get(), &found) != 0) return fail_errno("stat", path);
  if (!S_ISREG(found.st_mode)) return bad_key(path, "this is not a regular file: name a regular file");
  if (found.st_uid != 0 && found.st_uid != ::geteuid()) {
    return fail(ErrorCode::kNotPermitted, "signing key " + path + ": it belongs to the user " +
                                              std::to_string(found.st_uid) + ", who knows the key: make another one");
  }
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(ErrorCode::kNotPermitted,
                "signing key " + path +
                    ": its group or others have rights to it, so they may know the key: run chmod 600 " + path +
                    ", and make another key if somebody may have read it");
  }
  if (static_cast<uint64_t>(found.st_size) > SigningKey::kFileLimit) return bad_key(path, "it has more than 64 KiB");
  // In a directory of others another key may stand in its place tomorrow.
  INDUCTORFS_TRY(check_trusted_file(absolute(path)));
  return read_whole(*file, path);
}

Result<void> write_new(const std::string& path, std::string_view bytes, mode_t mode) {
  auto file = open_at(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
  if (!file && file.error().code() == ErrorCode::kExists) {
    return fail(ErrorCode::kExists, path + " exists: choose another name, or remove the file");
  }
  if (!file) return fail(Error(file.error()).with_context(path));
  auto written = write_full(file->get(), bytes);
  if (written && ::fsync(file->get()) != 0) written = fail_errno("fsync", path);
  if (!written) (void)::unlink(path.c_str());  // half a key is none
  return written;
}

/// The text of the private file, as `ssh-keygen` reads it.
std::string private_text(std::string_view seed, const PublicKey& key, std::string_view comment) {
  SecretBytes pair;
  pair.bytes.reserve(2 * kSeedSize);  // no buffer is left behind in growing
  pair.bytes.append(seed).append(key.raw());
  SecretBytes section;
  section.bytes.reserve(512 + comment.size());
  // Two equal numbers tell whether a passphrase was right. There is none, so they need not be random.
  section.bytes.append(key.raw().substr(0, 4)).append(key.raw().substr(0, 4));
  append_string(section.bytes, kKeyType);
  append_string(section.bytes, key.raw());
  append_string(section.bytes, pair.bytes);
  append_string(section.bytes, comment);
  for (char next = 1; section.bytes.size() % kPaddedTo != 0; ++next) section.bytes += next;
  SecretBytes whole;
  whole.bytes.reserve(1024 + comment.size());
  whole.bytes = kMagic;
  for (const std::string_view none : {"none", "none", ""}) append_string(whole.bytes, none);
  append_number(whole.bytes, 1);
  append_string(whole.bytes, key.blob());
  append_string(whole.bytes, section.bytes);
  return to_armour(whole.bytes, kArmour);
}

}  // namespace

struct SigningKey::Private {
  PrivateHandle key;
};

SigningKey::SigningKey(std::unique_ptr<Private> key, Signer signer)
    : private_(std::move(key)), signer_(std::move(signer)) {}
SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;
SigningKey::~SigningKey() = default;

Result<SigningKey> SigningKey::parse(std::string_view text, const std::string& name) {
  if (const std::string_view kind = other_kind(text); !kind.empty()) return bad_key(name, kind);
  constexpr std::string_view kCut = "the file is cut or damaged: copy it again, or make another key";
  std::string_view body = text.substr(kBegin.size());
  const size_t end = body.find(kEnd);
  if (end == body.npos || body.find_first_not_of(" \n", end + kEnd.size()) != body.npos) return bad_key(name, kCut);
  SecretBytes joined;
  joined.bytes.reserve(end);
  for (const char c : body.substr(0, end)) {
    if (c != '\n') joined.bytes += c;
  }
  auto decoded = from_base64(joined.bytes);
  if (!decoded) return bad_key(name, kCut);
  const SecretBytes bytes(*std::move(decoded));
  WireReader reader(bytes.bytes);
  if (reader.bytes(kMagic.size()) != kMagic) return bad_key(name, kCut);
  const std::string_view cipher = reader.string();
  const std::string_view derivation = reader.string();
  const std::string_view options = reader.string();
  const uint32_t count = reader.number();
  const std::string_view blob = reader.string();
  const std::string_view section = reader.string();
  if (!reader.complete()) return bad_key(name, kCut);
  if (cipher != "none" || derivation != "none" || !options.empty()) {
    return bad_key(name,
                   "it is encrypted, and nobody is there to give its passphrase: run ssh-keygen -p -N '' -f on a copy");
  }
  if (count != 1) return bad_key(name, "it holds more than one key");
  const auto key = PublicKey::from_blob(blob);
  if (!key) return fail(Error(key.error()).with_context("signing key " + name));
  std::string_view seed;
  std::string comment;
  if (!read_private(section, *key, seed, comment)) return bad_key(name, kCut);
  auto made = private_of(seed);
  if (!made || public_of(made.get()) != *key) return bad_key(name, kCut);
  return SigningKey(std::make_unique<Private>(Private{std::move(made)}),
                    Signer{*key, {}, std::move(comment), key->blob()});
}

Result<SigningKey> SigningKey::load(const std::string& path) {
  INDUCTORFS_TRY_ASSIGN(auto read, read_secret(path));
  const SecretBytes text(std::move(read));
  INDUCTORFS_TRY_ASSIGN(auto key, parse(text.bytes, path));
  INDUCTORFS_TRY(key.take_certificate(path + "-cert.pub"));
  return key;
}

Result<void> SigningKey::take_certificate(const std::string& path) {
  // Whoever could write it could stop this mount, or have it sign under a certificate that nobody trusts.
  const auto text = read_trusted_file(absolute(path), kFileLimit);
  if (!text && text.error().code() == ErrorCode::kNotFound) return {};
  INDUCTORFS_TRY(text);
  std::string_view rest = *text;
  auto signer = Signer::from_line(take_part(rest, '\n'));
  if (!signer) return fail(Error(signer.error()).with_context(path));
  if (!signer->certificate || signer->key != signer_.key) {
    return fail(ErrorCode::kInvalid,
                path + ": it is no certificate of the key beside it: remove it, or have that key certified");
  }
  if (!signer->certificate->is_genuine()) return fail(ErrorCode::kInvalid, path + ": its authority has not signed it");
  signer->comment = signer_.comment;
  signer_ = *std::move(signer);
  return {};
}

Result<SigningKey> SigningKey::generate(const std::string& path, std::string_view comment) {
  // Ed25519 takes any 32 bytes. Asked for a key that it has made, OpenSSL 3.0 would leave a copy in memory.
  SecretBytes seed(std::string(kSeedSize, '\0'));
  if (::getentropy(seed.bytes.data(), seed.bytes.size()) != 0) return fail_errno("getentropy");
  auto made = private_of(seed.bytes);
  INDUCTORFS_CHECK(made != nullptr);
  const PublicKey key = public_of(made.get());
  SigningKey whole(std::make_unique<Private>(Private{std::move(made)}),
                   Signer{key, {}, std::string(comment), key.blob()});
  const SecretBytes text(private_text(seed.bytes, key, comment));
  INDUCTORFS_TRY(write_new(path, text.bytes, 0600));
  if (auto written = write_new(path + ".pub", whole.public_line() + "\n", 0644); !written) {
    (void)::unlink(path.c_str());
    return fail(written.error());
  }
  return whole;
}

std::string SigningKey::public_line() const {
  return std::string(kKeyType) + " " + to_base64(signer_.key.blob()) +
         (signer_.comment.empty() ? "" : " " + signer_.comment);
}

std::string SigningKey::sign(std::string_view bytes) const {
  const Handle<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  std::string signature(kSignatureSize, '\0');
  size_t size = signature.size();
  const bool is_signed = context &&
                         EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, private_->key.get()) == 1 &&
                         EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                                        reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()) == 1;
  INDUCTORFS_CHECK(is_signed && size == kSignatureSize);
  return signature;
}

}  // namespace inductorfs::trust
