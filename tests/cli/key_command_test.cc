// SPDX-License-Identifier: Apache-2.0
#include "cli_fixture.h"
#include "inductorfs/trust/trusted_keys.h"

/// The built program: keys of those who sign.
namespace inductorfs::cli {

using config::Json;

namespace {

TEST_F(Cli, MakesAKeyAndShowsIt) {
  const std::string file = directory_ / "node.key";
  const Outcome made = run({"key", "generate", file});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_EQ(made.err, "");
  const std::string line = contents(file + ".pub");
  ASSERT_TRUE(is_one_line(line)) << line;
  const auto signer = trust::Signer::from_line(line.substr(0, line.size() - 1));
  ASSERT_TRUE(signer.has_value());
  EXPECT_EQ(made.out, line + "fingerprint   " + signer->key.fingerprint() + "\n");
  EXPECT_EQ(run({"key", "show", file}).out, made.out);
  EXPECT_EQ(run({"key", "show", file + ".pub"}).out, made.out);
  const Json json = Json::parse(run({"key", "show", "--json", file}).out, nullptr, false);
  EXPECT_EQ(json["public"], line.substr(0, line.size() - 1));
  EXPECT_EQ(json["fingerprint"], signer->key.fingerprint());
  EXPECT_FALSE(json.contains("certificate"));
  // The private part is in its file, and nowhere else.
  const std::string secret = contents(file);
  const std::string part = secret.substr(secret.size() - 100, 40);
  EXPECT_EQ((made.out + json.dump()).find(part), std::string::npos);
}

TEST_F(Cli, ShowsACertificate) {
  // By ssh-keygen -s CA -I node-1 -n 'tier=ci,user=alice' -O clear -z 4 -V 20200101000000Z:20980101000000Z
  const std::string file = directory_ / "node-cert.pub";
  ASSERT_TRUE(write_file_atomically(
      AT_FDCWD, file,
      "ssh-ed25519-cert-v01@openssh.com AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAIMt5kvT7+v+Go+p"
      "8+NBYRqf9vanzsbK2q5gPYiRHzwuFAAAAILC9cvjigWWMxmFbEh7Cb6DZjjaYpA3VAFBJLABma56PAAAAAAAAAAQAAAABAAAABm5"
      "vZGUtMQAAABkAAAAHdGllcj1jaQAAAAp1c2VyPWFsaWNlAAAAAF4L4QAAAAAA8MPwAAAAAAAAAAAAAAAAAAAAADMAAAALc3NoLWV"
      "kMjU1MTkAAAAgCLzNAMdUkqN6WRxTkAwEvDzCfdwtPKz9fJ5JKGkMG8cAAABTAAAAC3NzaC1lZDI1NTE5AAAAQIpXBbiEUmgUe3z"
      "RrsxeexPWpD8BfhvOomEhj+ogGCqJMl6ILyk8zmdAFX9LOWShjiuiBa05zjc9RDslbbO2GAg= node@host"
      "\n"));
  const Outcome text = run({"key", "show", file});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const std::string part : {"key id        node-1\n", "serial        4\n", "principals    tier=ci, user=alice\n",
                                 "valid         from 2020-01-01T00:00:00Z to 2098-01-01T00:00:00Z\n",
                                 "authority     SHA256:vyUrhlSe2aeUsA+j25Ndn/7dPPDf4bRvtlKRzMpudJo\n"}) {
    EXPECT_NE(text.out.find(part), std::string::npos) << part << text.out;
  }
  const Json json = Json::parse(run({"key", "show", "--json", file}).out, nullptr, false);
  EXPECT_EQ(json["certificate"]["principals"], Json::array({"tier=ci", "user=alice"}));
  EXPECT_EQ(json["certificate"]["genuine"], true);
}

TEST_F(Cli, RefusesKeysThatAreNone) {
  const std::string file = directory_ / "node.key";
  expect_refusal(run({"key", "show", file}), {file, "does not exist"}, 2);
  ASSERT_EQ(run({"key", "generate", file}).code, 0);
  expect_refusal(run({"key", "generate", file}), {file, "exists: choose another name"}, 2);
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  expect_refusal(run({"key", "show", file}), {file, "run chmod 600"}, 2);
  ASSERT_TRUE(write_file_atomically(AT_FDCWD, file, "ssh-rsa AAAA\n"));
  expect_refusal(run({"key", "show", file}), {file, "of a type ssh-rsa"}, 2);
  expect_refusal(run({"key", "show", "/dev/null"}), {"/dev/null", "not a regular file"}, 2);
  EXPECT_EQ(run({"key", "forge", file}).code, 2);
  EXPECT_EQ(run({"key", "show"}).code, 2);
}

}  // namespace
}  // namespace inductorfs::cli
