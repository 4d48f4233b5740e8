// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/trust/trusted_keys.h"

#include <ctime>

#include "inductorfs/trust/ssh_signature.h"
#include "ssh_tools.h"
#include "trust/wire.h"

namespace inductorfs::trust {
namespace {

constexpr std::string_view kKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA9eyMuqujHfhdeuHdhoKYu7DC+XiQHvoAVPaGvEoi+S";
constexpr uint64_t kDay = 24ULL * 3600;

Signer held() { return Signer::from_line(kKey).value(); }
uint64_t now() { return static_cast<uint64_t>(std::time(nullptr)); }

std::string why(std::string_view text) { return what_of(TrustedKeys::parse(text, "trusted")); }

Verdict verdict(const std::string& before, const std::vector<std::string>& needed, std::string_view space = kNamespace,
                uint64_t time = 1'000'000'000) {
  const auto keys = TrustedKeys::parse(before + " " + std::string(kKey) + " comment\n", "trusted");
  EXPECT_TRUE(keys) << keys.error().what();
  if (!keys) return Verdict::kMalformed;
  return keys->decide(held(), needed, space, time, {}).verdict;
}

TEST(TrustedKeys, MatchesPrincipalsAsOpenSshDoes) {
  EXPECT_EQ(verdict("tier=ci", {"tier=ci"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("tier=ci", {"tier=prod"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("tier=ci", {"tier=ci", "user=alice"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("tier=ci,user=*", {"tier=ci", "user=alice"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("user=?lice", {"user=alice"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("user=?lice", {"user=lice"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("*,!tier=prod", {"tier=ci"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("*,!tier=prod", {"tier=prod"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("!tier=prod", {"tier=ci"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("\"tier=a b,tier=c\"", {"tier=a b"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("tier=ci", {"TIER=ci"}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("*", {}), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict("a*b*c", {"aXbXXbc"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("a*b*c", {"aXbXXb"}), Verdict::kNotItsPrincipal);
  const std::string stars(1000, '*');
  EXPECT_EQ(verdict(stars + "x", {std::string(4000, 'y')}), Verdict::kNotItsPrincipal);  // and at once
}

TEST(TrustedKeys, KnowsItsOptions) {
  EXPECT_EQ(verdict("* namespaces=\"file,inductor*\"", {"x"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("* namespaces=\"file\"", {"x"}), Verdict::kWrongNamespace);
  EXPECT_EQ(verdict("* Namespaces=\"inductorfs\",valid-after=\"20010101\"", {"x"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("* cert-authority", {"x"}), Verdict::kUnknownKey);
  // 1,000,000,000 is 2001-09-09 01:46:40 UTC.
  EXPECT_EQ(verdict("* valid-after=\"20010909014640Z\"", {"x"}), Verdict::kTrusted);
  EXPECT_EQ(verdict("* valid-after=\"20010909015140Z\"", {"x"}), Verdict::kTrusted) << "five minutes";
  EXPECT_EQ(verdict("* valid-after=\"20010909015141Z\"", {"x"}), Verdict::kNotYetValid);
  EXPECT_EQ(verdict("* valid-before=\"200109090146Z\"", {"x"}), Verdict::kExpired);
  EXPECT_EQ(verdict("* valid-before=\"20010909014640Z\"", {"x"}), Verdict::kTrusted)
      << "as ssh-keygen: its last second";
  EXPECT_EQ(verdict("* valid-before=\"20010910\"", {"x"}), Verdict::kTrusted);
}

TEST(TrustedKeys, AnswersOfTheNearestLine) {
  const std::string key(kKey);
  const auto keys = TrustedKeys::parse("# a comment\n\n  b valid-before=\"20000101\" " + key + " old\na " + key +
                                           " namespaces\nb,c " + key + " second\n",
                                       "trusted");
  ASSERT_TRUE(keys) << keys.error().what();
  EXPECT_EQ(keys->size(), 3U);
  Decision by = keys->decide(held(), {"c"}, kNamespace, 1'000'000'000, {});
  EXPECT_EQ(std::pair(by.verdict, by.line), std::pair(Verdict::kTrusted, size_t{5}));
  EXPECT_EQ(by.name, "second");
  by = keys->decide(held(), {"b"}, kNamespace, 1'000'000'000, {});
  EXPECT_EQ(std::pair(by.verdict, by.line), std::pair(Verdict::kTrusted, size_t{5}));
  by = keys->decide(held(), {"d"}, kNamespace, 1'000'000'000, {});
  EXPECT_EQ(std::pair(by.verdict, by.line), std::pair(Verdict::kNotItsPrincipal, size_t{3}));
  Signer stranger = held();
  stranger.key.bytes[0] ^= 1;
  by = keys->decide(stranger, {"c"}, kNamespace, 1'000'000'000, {});
  EXPECT_EQ(std::pair(by.verdict, by.line), std::pair(Verdict::kUnknownKey, size_t{0}));
  RevokedKeys revoked;
  ASSERT_TRUE(revoked.add_fingerprint(held().key.fingerprint()));
  EXPECT_EQ(keys->decide(held(), {"c"}, kNamespace, 1'000'000'000, revoked).verdict, Verdict::kRevoked);
}

TEST(TrustedKeys, IsRefusedWholeForOneWrongLine) {
  const std::string key(kKey);
  const std::string good = "* " + key + "\n";
  const auto of_line_two = [&](const std::string& line, std::string_view part) {
    const std::string text = why(good + line + "\n" + good);
    EXPECT_TRUE(has(text, "trusted keys trusted:2: ")) << line << ": " << text;
    EXPECT_TRUE(has(text, part)) << line << ": " << text;
  };
  of_line_two(key, "it begins with the key");
  of_line_two("* ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAB", "only ssh-ed25519");
  of_line_two("* sk-ssh-ed25519@openssh.com AAAA", "only ssh-ed25519");
  of_line_two("* ssh-ed25519 AAAA", "damaged");
  of_line_two("* ssh-ed25519 !!!!", "not base64");
  of_line_two("* ssh-ed25519", "not base64");
  of_line_two("*", "it has no key");
  of_line_two("\"a " + key, "a quote does not end");
  of_line_two("a,,b " + key, "an empty one");
  of_line_two("\"\" " + key, "an empty one");
  of_line_two(std::string(1025, 'a') + " " + key, "more than 1024 bytes");
  of_line_two("* no-touch " + key, "\"no-touch\" is unknown");
  of_line_two("* cert-authority,cert-authority " + key, "twice");
  of_line_two("* namespaces " + key, "needs a value");
  of_line_two("* namespaces=x " + key, "not in quotes");
  of_line_two("* namespaces=\"x " + key, "not in quotes");
  of_line_two("* namespaces=\"x\"y " + key, "no list of words");
  for (const std::string time :
       {"2026", "20261301", "20260230", "202601012460", "2026010124", "20260101z", "", "Z", "-0260101"}) {
    of_line_two("* valid-after=\"" + time + "\" " + key, "is no time");
  }
  of_line_two("* valid-after=\"20260102\",valid-before=\"20260101\" " + key, "not after");
  of_line_two(std::string("* \0", 3) + key, "a NUL");
  EXPECT_TRUE(has(why("* " + key + "\r\n"), "trusted:1: the line ends with a carriage return"));
  EXPECT_EQ(TrustedKeys::parse("", "trusted")->size(), 0U);
  EXPECT_EQ(TrustedKeys::parse("* " + key, "trusted")->size(), 1U);  // without a last end of line
}

TEST(TrustedKeys, HasLimits) {
  std::string text;
  for (int i = 0; i < 4096; ++i) text += "#\n";
  EXPECT_EQ(why(text), "");
  EXPECT_TRUE(has(why(text + "#\n"), "trusted:4097: it has more than 4096 lines"));
  EXPECT_TRUE(has(why(std::string(size_t{10} << 20, '#')), "more than 1 MiB"));
}

class TrustedFiles : public SshTools {
 protected:
  Decision decide(const Signer& who, const std::vector<std::string>& needed, uint64_t time,
                  const RevokedKeys& revoked = {}) {
    const auto keys = TrustedKeys::load(root_ / "trusted");
    EXPECT_TRUE(keys) << keys.error().what();
    return keys ? keys->decide(who, needed, kNamespace, time, revoked) : Decision{Verdict::kMalformed, {}, 0};
  }
  Verdict verdict_at(const std::string& name, const std::vector<std::string>& needed, uint64_t time) {
    return decide(signer(name), needed, time).verdict;
  }
  std::string why_not(const std::string& name) { return what_of(Signer::from_line(line(name))); }
};

TEST_F(TrustedFiles, AreRefusedIfAbsentLargeOrOpenToOthers) {
  EXPECT_EQ(what_of(TrustedKeys::load(root_ / "none")), "trusted keys " + root_ / "none" + ": it does not exist");
  EXPECT_EQ(what_of(RevokedKeys::load(root_ / "none")), "revoked keys " + root_ / "none" + ": it does not exist");
  write("trusted", std::string(size_t{10} << 20, '#'));
  EXPECT_EQ(TrustedKeys::load(root_ / "trusted").error().code(), ErrorCode::kTooLarge);
  write("trusted", "* " + std::string(kKey), 0666);
  EXPECT_EQ(TrustedKeys::load(root_ / "trusted").error().code(), ErrorCode::kNotPermitted);
  EXPECT_TRUE(has(what_of(TrustedKeys::load(root_ / "trusted")), "trusted keys: "));
}

TEST_F(TrustedFiles, TrustCertificatesOfAnAuthority) {
  make_key("ca");
  make_key("other");
  make_key("k");
  certify("k", "ca", "-I node-1 -n tier=ci,user=alice -z 7 -V +1d");
  write("trusted", "tier=*,user=* cert-authority " + line("ca.pub"));
  const Signer who = signer("k-cert.pub");
  ASSERT_TRUE(who.certificate);
  EXPECT_EQ(who.certificate->serial, 7U);
  EXPECT_EQ(who.certificate->key_id, "node-1");
  EXPECT_EQ(who.certificate->principals, (std::vector<std::string>{"tier=ci", "user=alice"}));
  EXPECT_EQ(who.certificate->authority, signer("ca.pub").key);
  EXPECT_TRUE(who.certificate->is_genuine());
  const Decision by = decide(who, {"tier=ci", "user=alice"}, now());
  EXPECT_EQ(std::pair(by.verdict, by.line), std::pair(Verdict::kTrusted, size_t{1}));
  EXPECT_EQ(by.name, "node-1");
  EXPECT_EQ(verdict_at("k-cert.pub", {"tier=ci", "user=bob"}, now()), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict_at("k.pub", {"tier=ci"}, now()), Verdict::kUnknownKey) << "the plain key";
  // The line narrows what the certificate says, and a line of the plain key is none of the certificate.
  write("trusted", "tier=dev cert-authority " + line("ca.pub"));
  EXPECT_EQ(verdict_at("k-cert.pub", {"tier=ci"}, now()), Verdict::kNotItsPrincipal);
  write("trusted", "* " + line("k.pub") + "\n* " + line("ca.pub") + "\n* cert-authority " + line("other.pub"));
  EXPECT_EQ(verdict_at("k-cert.pub", {"tier=ci"}, now()), Verdict::kUnknownKey);
}

TEST_F(TrustedFiles, KeepToTheTimesOfACertificate) {
  make_key("ca");
  make_key("k");
  certify("k", "ca", "-I n -n a -V 20300101000000Z:20300102000000Z");
  write("trusted", "* cert-authority " + line("ca.pub"));
  const uint64_t from = 1'893'456'000;  // 2030-01-01
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from), Verdict::kTrusted);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from - 300), Verdict::kTrusted);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from - 301), Verdict::kNotYetValid);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from - 3600), Verdict::kNotYetValid);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from + kDay - 1), Verdict::kTrusted);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, from + kDay), Verdict::kExpired);
  certify("k", "ca", "-I n -n a -V always:forever");
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, UINT64_MAX - 1), Verdict::kTrusted);
  EXPECT_EQ(verdict_at("k-cert.pub", {"a"}, 0), Verdict::kTrusted);
}

TEST_F(TrustedFiles, TakePrincipalsOfCertificatesLiterally) {
  make_key("ca");
  make_key("k");
  write("trusted", "* cert-authority " + line("ca.pub"));
  certify("k", "ca", "-I n -n 'tier=*,user=?'");
  EXPECT_EQ(verdict_at("k-cert.pub", {"tier=ci"}, now()), Verdict::kNotItsPrincipal);
  EXPECT_EQ(verdict_at("k-cert.pub", {"user=a"}, now()), Verdict::kNotItsPrincipal);
  certify("k", "ca", "-I n");  // without any, which is everybody's at a login
  EXPECT_EQ(verdict_at("k-cert.pub", {"tier=ci"}, now()), Verdict::kNotItsPrincipal);
}

TEST_F(TrustedFiles, RefuseForgedCertificates) {
  make_key("ca");
  make_key("k");
  certify("k", "ca", "-I n -n tier=ci");
  write("trusted", "* cert-authority " + line("ca.pub"));
  std::string blob = signer("k-cert.pub").blob;
  const size_t at = blob.find("tier=ci");
  ASSERT_NE(at, std::string::npos);
  blob.replace(at, 7, "tier=up");
  const auto forged = Signer::from_blob(blob);
  ASSERT_TRUE(forged);
  EXPECT_FALSE(forged->certificate->is_genuine());
  EXPECT_EQ(decide(*forged, {"tier=up"}, now()).verdict, Verdict::kBadSignature);
  write("k-cert.pub", std::string(kCertificateType) + " " + to_base64(blob));
  EXPECT_TRUE(has(what_of(SigningKey::load(root_ / "k")), "its authority has not signed it"));
}

TEST_F(TrustedFiles, RefuseOtherCertificates) {
  make_key("ca");
  make_key("k");
  certify("k", "ca", "-h -I n -n host");
  EXPECT_TRUE(has(why_not("k-cert.pub"), "is a host certificate")) << why_not("k-cert.pub");
  certify("k", "ca", "-I n -n a -O force-command=true");
  EXPECT_TRUE(has(why_not("k-cert.pub"), "critical option force-command")) << why_not("k-cert.pub");
  certify("ca", "ca", "-I n -n a");
  EXPECT_TRUE(has(why_not("ca-cert.pub"), "is the authority's own")) << why_not("ca-cert.pub");
  make_key("rsa", "rsa");
  certify("k", "rsa", "-I n -n a");
  EXPECT_TRUE(has(why_not("k-cert.pub"), "type ssh-rsa: the authority needs an Ed25519 key")) << why_not("k-cert.pub");
  certify("rsa", "ca", "-I n -n a");
  EXPECT_TRUE(has(why_not("rsa-cert.pub"), "ssh-rsa-cert-v01@openssh.com, and only")) << why_not("rsa-cert.pub");
  // A certificate whose authority is a certificate: ssh-keygen makes none, so the authority's key is exchanged.
  certify("k", "ca", "-I n -n a");
  std::string blob = signer("k-cert.pub").blob;
  std::string authority;
  append_string(authority, signer("ca.pub").key.blob());
  std::string chained;
  append_string(chained, signer("k-cert.pub").blob);
  blob.replace(blob.find(authority), authority.size(), chained);
  EXPECT_TRUE(has(what_of(Signer::from_blob(blob)), "an authority that has a certificate itself"));
}

TEST_F(TrustedFiles, RefuseCutCertificates) {
  make_key("ca");
  make_key("k");
  certify("k", "ca", "-I n -n a,b");
  const std::string blob = signer("k-cert.pub").blob;
  for (size_t size = 0; size < blob.size(); ++size) EXPECT_FALSE(Signer::from_blob(blob.substr(0, size))) << size;
  EXPECT_FALSE(Signer::from_blob(blob + "x"));
  EXPECT_TRUE(has(what_of(Certificate::from_blob(blob + std::string(kSignerLimit, 'x'))), "more than 16 KiB"));
}

TEST_F(TrustedFiles, KnowTwoKeysOfOneName) {
  make_key("one");
  make_key("two");
  write("trusted", "tier=ci " + line("one.pub") + "\ntier=ci " + line("two.pub"));
  EXPECT_EQ(decide(signer("one.pub"), {"tier=ci"}, now()).line, 1U);
  EXPECT_EQ(decide(signer("two.pub"), {"tier=ci"}, now()).line, 2U);
}

TEST_F(TrustedFiles, AreReadAsSshKeygenReadsThem) {
  make_key("k");
  write("text", "text");
  ASSERT_EQ(run("ssh-keygen -q -Y sign -f k -n inductorfs text"), 0) << said;
  struct Case {
    std::string before;
    bool is_trusted;
  };
  for (const Case& one : {Case{"tier=ci", true},
                          {"tier=*", true},
                          {"*,!tier=ci", false},
                          {"!tier=dev,*", true},
                          {"tier=c?", true},
                          {"\"tier=ci\"", true},
                          {"* namespaces=\"git,inductor*\"", true},
                          {"* namespaces=\"git\"", false},
                          {"* valid-after=\"20200101Z\",valid-before=\"20980101\"", true},
                          {"* valid-before=\"20200101\"", false},
                          {"* valid-after=\"209001010000Z\"", false},
                          {"* CERT-AUTHORITY", false},
                          {"a,b", false}}) {
    write("trusted", one.before + " " + line("k.pub") + "\n");
    const int status = run("ssh-keygen -Y verify -f trusted -I tier=ci -n inductorfs -s text.sig <text");
    EXPECT_EQ(status == 0, one.is_trusted) << one.before << ": " << said;
    EXPECT_EQ(verdict_at("k.pub", {"tier=ci"}, now()) == Verdict::kTrusted, one.is_trusted) << one.before;
  }
}

}  // namespace
}  // namespace inductorfs::trust
