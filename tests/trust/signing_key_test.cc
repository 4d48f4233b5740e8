// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/signing_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "inductorfs/base/encoding.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/trust/ssh_signature.h"
#include "ssh_tools.h"
#include "support/patience.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

class SigningKeyTest : public SshTools {
 protected:
  std::string why(const std::string& name) { return what_of(SigningKey::load(root_ / name)); }
};

/// A key that ssh-keygen made, and what it says of it: the form does not depend on the release.
constexpr std::string_view kKey =
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    "QyNTUxOQAAACAPXsjLqrox34XXrh3YaCmLuwwvl4kB76AFT2hrxKIvkgAAAJBQLpZ+UC6W\n"
    "fgAAAAtzc2gtZWQyNTUxOQAAACAPXsjLqrox34XXrh3YaCmLuwwvl4kB76AFT2hrxKIvkg\n"
    "AAAEA/7rrMjsG0qKrjEylqGg+yPeOpQqOcXO/bZf5N32q7vA9eyMuqujHfhdeuHdhoKYu7\n"
    "DC+XiQHvoAVPaGvEoi+SAAAACWhlbGRAaG9zdAECAwQ=\n"
    "-----END OPENSSH PRIVATE KEY-----\n";
constexpr std::string_view kLine =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA9eyMuqujHfhdeuHdhoKYu7DC+XiQHvoAVPaGvEoi+S held@host";
constexpr std::string_view kFingerprint = "SHA256:ZL+hSbzlox9cDgBlT+R8JkFn093+rsbGKfulPM4F7t4";
/// Of the text "text\n" in the namespace "inductorfs", by ssh-keygen -Y sign.
constexpr std::string_view kSignature =
    "9fRU41b+7BEsQMqMEYLzYjGfhC5le0AfmCkLnqDAzspeHfyVpONqlybPIEkoN8zMZFH160Ar/earTJPosXjABA==";

TEST(HeldKey, SignsAsSshKeygenDid) {
  const auto key = SigningKey::parse(kKey, "held");
  ASSERT_TRUE(key) << key.error().what();
  EXPECT_EQ(key->public_line(), kLine);
  EXPECT_EQ(key->public_key().fingerprint(), kFingerprint);
  const std::string signature = sign_text(*key, kNamespace, "text\n");
  EXPECT_EQ(to_base64(signature), kSignature);
  EXPECT_TRUE(is_signed_by(key->public_key(), kNamespace, "text\n", signature));
  EXPECT_FALSE(is_signed_by(key->public_key(), "file", "text\n", signature));
  EXPECT_FALSE(is_signed_by(key->public_key(), kNamespace, "text", signature));
  EXPECT_FALSE(is_signed_by(key->public_key(), kNamespace, "text\n", signature.substr(1)));
}

TEST(HeldKey, IsRefusedIfCutAnywhere) {
  for (size_t size = 0; size + 1 < kKey.size(); ++size) {
    EXPECT_FALSE(SigningKey::parse(kKey.substr(0, size), "cut")) << size;
  }
}

TEST(HeldKey, IsRefusedIfAnyBitIsAnother) {
  // The public half twice, the private one, the two numbers and the padding are compared; the comment is free.
  const std::string text(kKey);
  const auto whole = SigningKey::parse(text, "held");
  size_t taken = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = other[i] == 'A' ? 'B' : 'A';
    const auto key = SigningKey::parse(other, "other");
    if (!key) continue;
    ++taken;
    EXPECT_EQ(key->public_key(), whole->public_key()) << i;
  }
  EXPECT_LT(taken, 20U);  // letters of the comment
}

TEST(Base64, TakesNothingButItself) {
  EXPECT_EQ(from_base64("YWI="), "ab");
  EXPECT_EQ(to_base64("ab"), "YWI=");
  for (const std::string_view text : {"", "YWI", " YWI", "YWI\n", "YW==YWI=", "Y===", "====", "YW=I", "Y-I="}) {
    EXPECT_FALSE(from_base64(text)) << text;
  }
}

TEST_F(SigningKeyTest, IsGeneratedAsSshKeygenReadsIt) {
  const auto made = SigningKey::generate(root_ / "node.key", "node.key");
  ASSERT_TRUE(made) << made.error().what();
  struct stat found {};
  ASSERT_EQ(::stat((root_ / "node.key").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777U, 0600U);
  EXPECT_EQ(line("node.key.pub"), made->public_line());
  ASSERT_EQ(run("ssh-keygen -y -f node.key"), 0) << said;
  EXPECT_EQ(said, made->public_line() + "\n");
  ASSERT_EQ(run("ssh-keygen -l -f node.key.pub"), 0) << said;
  EXPECT_EQ(said, "256 " + made->public_key().fingerprint() + " node.key (ED25519)\n");
  EXPECT_EQ(key("node.key").public_key(), made->public_key());
  EXPECT_EQ(what_of(SigningKey::generate(root_ / "node.key", "")),
            root_ / "node.key" + " exists: choose another name, or remove the file");
  const auto second = SigningKey::generate(root_ / "second.key", "");
  ASSERT_TRUE(second);
  EXPECT_NE(second->public_key(), made->public_key());
  EXPECT_EQ(key("second.key").public_line(), second->public_line());
}

TEST_F(SigningKeyTest, LeavesNoHalfPair) {
  write("a.pub", "somebody's");
  EXPECT_TRUE(has(what_of(SigningKey::generate(root_ / "a", "")), "a.pub exists"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "a"));
  EXPECT_EQ(read("a.pub"), "somebody's");
}

TEST_F(SigningKeyTest, ReadsWhatSshKeygenMakes) {
  make_key("k");
  const SigningKey loaded = key("k");
  EXPECT_EQ(loaded.public_line(), line("k.pub"));
  EXPECT_FALSE(loaded.signer().certificate);
  write("text", "the text");
  ASSERT_EQ(run("ssh-keygen -q -Y sign -f k -n inductorfs text"), 0) << said;
  // Ed25519 has one signature for a text, so the files are equal.
  EXPECT_EQ(read("text.sig"),
            armoured_signature(loaded.signer().blob, kNamespace, sign_text(loaded, kNamespace, "the text")));
}

TEST_F(SigningKeyTest, TakesItsCertificate) {
  make_key("ca");
  make_key("other");
  make_key("k");
  certify("k", "ca", "-I node-1 -n tier=ci,user=alice -z 7 -V +1d");
  const SigningKey loaded = key("k");
  ASSERT_TRUE(loaded.signer().certificate);
  EXPECT_EQ(loaded.signer().blob, signer("k-cert.pub").blob);
  EXPECT_EQ(loaded.public_line(), line("k.pub"));
  ASSERT_EQ(::rename((root_ / "k-cert.pub").c_str(), (root_ / "other-cert.pub").c_str()), 0);
  EXPECT_TRUE(has(why("other"), "other-cert.pub: it is no certificate of the key beside it")) << why("other");
  write("k-cert.pub", line("k.pub"));
  EXPECT_TRUE(has(why("k"), "it is no certificate of the key beside it")) << why("k");
  write("k-cert.pub", "garbage");
  EXPECT_TRUE(has(why("k"), "k-cert.pub: ")) << why("k");
}

TEST_F(SigningKeyTest, RefusesOtherKindsOfKeys) {
  for (const std::string type : {"rsa", "ecdsa"}) {
    make_key(type, type);
    EXPECT_TRUE(has(why(type), root_ / type + ": the key is of a type ")) << why(type);
    EXPECT_TRUE(has(why(type), "ssh-keygen -t ed25519"));
  }
  make_key("k");
  EXPECT_TRUE(has(why("k.pub"), "mode") || has(why("k.pub"), "chmod 600"));
  write("public", read("k.pub"));
  EXPECT_TRUE(has(why("public"), "this is a public key or a certificate")) << why("public");
  ASSERT_EQ(run("openssl genpkey -algorithm ed25519 -out pem && chmod 600 pem"), 0) << said;
  EXPECT_TRUE(has(why("pem"), "PEM or PKCS#8")) << why("pem");
  ASSERT_EQ(run("ssh-keygen -q -t ed25519 -N secret -f locked"), 0) << said;
  EXPECT_TRUE(has(why("locked"), "it is encrypted")) << why("locked");
  EXPECT_TRUE(has(why("locked"), "ssh-keygen -p"));
}

TEST_F(SigningKeyTest, RefusesDamagedFiles) {
  make_key("k");
  const std::string text = read("k");
  std::string windows;
  for (const char c : text) windows.append(c == '\n' ? "\r" : "").push_back(c);
  write("crlf", windows);
  EXPECT_TRUE(has(why("crlf"), "carriage returns")) << why("crlf");
  write("cut", text.substr(0, text.size() / 2));
  EXPECT_TRUE(has(why("cut"), "cut or damaged")) << why("cut");
  write("empty", "");
  EXPECT_TRUE(has(why("empty"), "the file is empty")) << why("empty");
  write("more", text + "and more\n");
  EXPECT_TRUE(has(why("more"), "cut or damaged")) << why("more");
  write("noise", std::string("\0\1\2", 3));
  EXPECT_TRUE(has(why("noise"), "no private key of OpenSSH")) << why("noise");
  write("large", text + std::string(SigningKey::kFileLimit, '\n'));
  EXPECT_TRUE(has(why("large"), "more than 64 KiB")) << why("large");
}

TEST_F(SigningKeyTest, RefusesFilesThatOthersMayRead) {
  make_key("k");
  for (const mode_t mode : {0640U, 0604U, 0620U, 0610U, 0602U}) {
    ASSERT_EQ(::chmod((root_ / "k").c_str(), mode), 0);
    const auto loaded = SigningKey::load(root_ / "k");
    ASSERT_FALSE(loaded) << mode;
    EXPECT_EQ(loaded.error().code(), ErrorCode::kNotPermitted);
    EXPECT_TRUE(has(loaded.error().what(), "run chmod 600 " + root_ / "k"));
  }
  ASSERT_EQ(::chmod((root_ / "k").c_str(), 0400), 0);
  EXPECT_EQ(why("k"), "");
  ASSERT_EQ(::symlink("k", (root_ / "link").c_str()), 0);
  EXPECT_TRUE(has(why("link"), "this is a symbolic link")) << why("link");
  ASSERT_EQ(::mkfifo((root_ / "fifo").c_str(), 0600), 0);
  EXPECT_TRUE(has(why("fifo"), "not a regular file")) << why("fifo");
  EXPECT_EQ(SigningKey::load(root_ / "absent").error().code(), ErrorCode::kNotFound);
  if (::geteuid() != 0) return;  // only root gives files away
  ASSERT_EQ(::chown((root_ / "k").c_str(), 12345, 0), 0);
  EXPECT_TRUE(has(why("k"), "it belongs to the user 12345")) << why("k");
}

#ifndef INDUCTORFS_TEST_SANITIZED  // whose heap is another, and keeps what was freed
/// Whether this process's heap has these bytes, which are given backwards, so that what is looked for is nowhere
/// itself.
bool is_in_heap(const std::string& backwards) {
  std::ifstream maps("/proc/self/maps");
  const Fd memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  for (std::string map; std::getline(maps, map);) {
    unsigned long from = 0;
    unsigned long to = 0;
    if (!has(map, "[heap]") || std::sscanf(map.c_str(), "%lx-%lx", &from, &to) != 2) continue;
    std::string bytes(to - from, '\0');
    EXPECT_EQ(::pread(memory.get(), bytes.data(), bytes.size(), static_cast<off_t>(from)),
              static_cast<ssize_t>(bytes.size()));
    const bool found = std::search(bytes.rbegin(), bytes.rend(), backwards.begin(), backwards.end()) != bytes.rend();
    std::fill(bytes.begin(), bytes.end(), '\0');  // it may lie in the heap itself
    if (found) return true;
  }
  return false;
}

TEST_F(SigningKeyTest, LeavesNothingInMemory) {
  // The seed begins at byte 161 of a key without a comment and a passphrase: see PROTOCOL.key.
  const auto seed_of = [&](const std::string& name) {
    EXPECT_EQ(run("sed '1d;$d' " + name +
                  " | base64 -d | od -An -v -tx1 | tr -d ' \\n' | cut -c 323-386 | fold -w2 | tac | tr -d '\\n'"),
              0);
    return from_hex(said).value_or("");
  };
  { const auto made = SigningKey::generate(root_ / "made", ""); }
  const std::string seed = seed_of("made");
  ASSERT_EQ(seed.size(), 32U) << said;
  EXPECT_FALSE(is_in_heap(seed)) << "of generate()";
  {
    const SigningKey loaded = key("made");
    EXPECT_EQ(loaded.sign("x").size(), 64U);
    EXPECT_TRUE(is_in_heap(seed));  // what OpenSSL holds: so the search finds what is there
  }
  EXPECT_FALSE(is_in_heap(seed)) << "of load()";
}
#endif

}  // namespace
}  // namespace inductorfs::trust
