// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/revoked_keys.h"

#include "inductorfs/base/encoding.h"
#include "ssh_tools.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

class RevokedKeysTest : public SshTools {
 protected:
  void SetUp() override {
    SshTools::SetUp();
    if (IsSkipped()) return;
    for (const std::string name : {"ca", "ca2", "k", "other"}) make_key(name);
  }
  /// Makes the list from what is given to `ssh-keygen -k`, and loads it.
  RevokedKeys listed(const std::string& specification, const std::string& options = "-s ca.pub") {
    write("specification", specification);
    EXPECT_EQ(run("rm -f list; ssh-keygen -q -k -f list " + options + " specification"), 0) << said;
    auto loaded = RevokedKeys::load(root_ / "list");
    EXPECT_TRUE(loaded) << loaded.error().what();
    return loaded.value_or(RevokedKeys());
  }
  Signer certified(const std::string& options, const std::string& authority = "ca") {
    certify("k", authority, "-n a " + options);
    return signer("k-cert.pub");
  }
};

/// A list that revokes nothing of what it is about would be taken for one that does.
TEST_F(RevokedKeysTest, AreRefusedIfAKeyIsCut) {
  const std::string blob = signer("k.pub").blob;
  const auto is_read = [](const std::string& blob_of_line) {
    return RevokedKeys::parse("ssh-ed25519 " + to_base64(blob_of_line) + "\n", "list").has_value();
  };
  ASSERT_TRUE(is_read(blob));
  for (size_t size = 0; size < blob.size(); ++size) EXPECT_FALSE(is_read(blob.substr(0, size))) << size;
  EXPECT_FALSE(is_read(blob + "x"));
  // The same in a binary list: its key, and the authority of a certificate.
  for (const char* const command :
       {"ssh-keygen -q -k -f list k.pub", "echo serial: 1 | ssh-keygen -q -k -f list -s ca.pub -"}) {
    ASSERT_EQ(run("rm -f list; " + std::string(command)), 0) << said;
    const std::string whole = read("list");
    ASSERT_TRUE(RevokedKeys::parse(whole, "list")) << command;
    const std::string length{'\0', '\0', '\0', '\x20'};  // of the 32 bytes of an Ed25519 key
    const size_t at = whole.find(length, whole.find("ssh-ed25519"));
    ASSERT_NE(at, std::string::npos);
    std::string other = whole;
    other[at + 3] = '\x1f';
    EXPECT_FALSE(RevokedKeys::parse(other, "list")) << command;
    other = whole;
    other[whole.find("ssh-ed25519")] = 'x';
    EXPECT_TRUE(RevokedKeys::parse(other, "list")) << "a type that is not known is a key all the same";
  }
}

TEST_F(RevokedKeysTest, AreReadFromALineEach) {
  make_key("rsa", "rsa");
  write("list", "# gone\n\n" + line("rsa.pub") + "\n  " + line("k.pub") + "\n");
  const auto revoked = RevokedKeys::load(root_ / "list");
  ASSERT_TRUE(revoked) << revoked.error().what();
  EXPECT_TRUE(revoked->has(signer("k.pub")));
  EXPECT_TRUE(revoked->has(certified("-I n"))) << "with any certificate";
  EXPECT_FALSE(revoked->has(signer("other.pub")));
  const auto why = [](std::string_view text) { return what_of(RevokedKeys::parse(text, "list")); };
  write("list", line("k-cert.pub"));
  EXPECT_TRUE(RevokedKeys::load(root_ / "list")->has(signer("k.pub")));
  EXPECT_TRUE(has(why(line("k.pub") + "\nsomething else\n"), "revoked keys list:2: this is no public key"));
  EXPECT_TRUE(has(why(line("k.pub") + "\r\n"), "list:1: the line ends with a carriage return"));
  EXPECT_TRUE(has(why("ssh-rsa " + to_base64(signer("k.pub").key.blob())), "this is no public key"));
  EXPECT_TRUE(has(why(std::string(size_t{2} << 20, '#')), "more than 1 MiB"));
  EXPECT_TRUE(RevokedKeys::parse("", "list")->empty());
}

TEST_F(RevokedKeysTest, AreReadFromABinaryList) {
  RevokedKeys revoked = listed(line("k.pub"));
  EXPECT_TRUE(revoked.has(signer("k.pub")));
  EXPECT_FALSE(revoked.has(signer("other.pub")));
  const std::string print = signer("k.pub").key.fingerprint();
  EXPECT_TRUE(listed("hash: " + print).has(signer("k.pub")));
  EXPECT_TRUE(listed("sha256: " + line("k.pub")).has(signer("k.pub")));
  EXPECT_TRUE(listed("sha1: " + line("k.pub")).has(signer("k.pub")));
  EXPECT_FALSE(listed("sha1: " + line("k.pub")).has(signer("other.pub")));
  EXPECT_TRUE(listed(line("ca.pub"), "").has(certified("-I n -z 1"))) << "the authority";
}

TEST_F(RevokedKeysTest, NameCertificatesOfAnAuthority) {
  const auto has_serial = [&](const RevokedKeys& revoked, int serial, const std::string& authority = "ca") {
    return revoked.has(certified("-I n -z " + std::to_string(serial), authority));
  };
  const RevokedKeys range = listed("serial: 10-20");
  EXPECT_TRUE(has_serial(range, 10) && has_serial(range, 20) && has_serial(range, 15));
  EXPECT_FALSE(has_serial(range, 9) || has_serial(range, 21));
  EXPECT_FALSE(has_serial(range, 15, "ca2")) << "of another authority";
  EXPECT_FALSE(range.has(signer("k.pub")));
  std::string many;  // which ssh-keygen writes as bits
  for (int serial = 101; serial < 150; serial += 2) many += "serial: " + std::to_string(serial) + "\n";
  const RevokedKeys bits = listed(many);
  EXPECT_TRUE(has_serial(bits, 101) && has_serial(bits, 117) && has_serial(bits, 149));
  EXPECT_FALSE(has_serial(bits, 100) || has_serial(bits, 118) || has_serial(bits, 151) || has_serial(bits, 1));
  const RevokedKeys far = listed("serial: 1\nserial: 4000000000\n");  // and these as a list
  EXPECT_TRUE(has_serial(far, 1));
  EXPECT_FALSE(has_serial(far, 2));
  EXPECT_TRUE(listed("id: node-1").has(certified("-I node-1")));
  EXPECT_FALSE(listed("id: node-1").has(certified("-I node-2")));
  EXPECT_TRUE(listed("serial: 7", "-s none").has(certified("-I n -z 7", "ca2"))) << "of any authority";
}

TEST_F(RevokedKeysTest, AreMerged) {
  RevokedKeys all;
  EXPECT_TRUE(all.empty());
  ASSERT_TRUE(all.add_fingerprint(signer("other.pub").key.fingerprint()));
  all.merge(listed("serial: 7"));
  all.merge(listed("sha1: " + line("ca2.pub")));
  EXPECT_TRUE(all.has(signer("other.pub")));
  EXPECT_TRUE(all.has(signer("ca2.pub")));
  EXPECT_TRUE(all.has(certified("-I n -z 7")));
  EXPECT_FALSE(all.has(certified("-I n -z 8")));
  for (const std::string_view wrong :
       {"", "SHA256:", "SHA256:abc", "MD5:00", "ZL+hSbzlox9cDgBlT+R8JkFn093+rsbGKfulPM4F7t4"}) {
    EXPECT_FALSE(all.add_fingerprint(wrong)) << wrong;
  }
}

TEST_F(RevokedKeysTest, AreRefusedIfCutOrUnknown) {
  (void)listed("serial: 10-20\nserial: 22\nid: x\nsha256: " + line("k.pub") + "\nsha1: " + line("k.pub") + "\n" +
               line("k.pub"));
  const std::string list = read("list");
  // Sections are not counted, so a list may be cut between two: ten bytes or so of hundreds.
  size_t taken = 0;
  for (size_t size = 9; size < list.size(); ++size) taken += RevokedKeys::parse(list.substr(0, size), "cut") ? 1 : 0;
  EXPECT_LE(taken, 5U);
  const auto with = [&](uint8_t type, std::string_view data) {
    std::string bytes = list + static_cast<char>(type);
    append_string(bytes, data);
    return RevokedKeys::parse(bytes, "list");
  };
  EXPECT_TRUE(
      has(what_of(with(9, "x")), "revoked keys list: the list is damaged, or has what this release does not know"));
  EXPECT_FALSE(with(9, ""));
  for (const auto& [type, size] : {std::pair<uint8_t, size_t>{2, 0}, {3, 19}, {3, 21}, {5, 31}, {5, 20}}) {
    std::string one;
    append_string(one, std::string(size, 'x'));
    EXPECT_FALSE(with(type, one)) << int{type} << " " << size;
  }
  std::string extension;
  append_string(extension, "new@example");
  const std::string contents("\0\0\0\0", 4);
  EXPECT_TRUE(with(255, extension + '\0' + contents));
  EXPECT_FALSE(with(255, extension + '\1' + contents)) << "critical";
  std::string authority;
  append_string(authority, "");
  append_string(authority, "");
  const std::string range("\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x08", 16);
  std::string part = authority + '\x21';
  append_string(part, range);
  EXPECT_FALSE(with(1, part)) << "from 9 to 8";
  EXPECT_TRUE(with(1, authority));
  std::string version = list;
  version[11] = 2;
  EXPECT_FALSE(RevokedKeys::parse(version, "list"));
}

TEST_F(RevokedKeysTest, TakeASignedList) {
  std::string bytes;
  (void)listed(line("k.pub"));
  bytes = read("list") + '\x04';
  append_string(bytes, "a key");
  append_string(bytes, "a signature");
  const auto revoked = RevokedKeys::parse(bytes, "list");
  ASSERT_TRUE(revoked) << revoked.error().what();
  EXPECT_TRUE(revoked->has(signer("k.pub")));
}

}  // namespace
}  // namespace inductorfs::trust
