// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "inductorfs/codec/digest.h"
#include "inductorfs/fingerprint/fingerprint.h"

namespace inductorfs::fingerprint {
namespace {

/// triton_key() of triton 3.9.0, and CacheBase.get_system()["hash"] of torch 2.15.0+cu132 with it: recorded from torch
/// itself, with and without a stand-in device.
constexpr const char* kTritonKey =
    "3.9.058b25352786ff1d04468ce113f1986063da0b78640428046a28c8ede4c9126ac-7fb807f2ce7f4e13dacaacc611a8f4bff638a9"
    "337029f4e8d52984f2c0a1d388-722152ea31dbdee7b10958c44403f163350674588c357613229230978956d3cf-23d635e690d670bf"
    "61798e1259674b78c0ed5ba222ab6a455f329f27a758fc2d-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b785"
    "2b855-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-70d70828e26d71d34883f4bb5a3b27ffa992f"
    "ef7fc426142ef805ab540fcba74-179fd8a0d9953f5ed50dc127f354c13ef65698cc8751c9c71de4f1b95f4f4d1a-2c1486fc1521ccd"
    "2a8ace0f4a2ae2c277706284d136676987339153a5b9121e1-3aaa775f592533d06c13c99c23bd117430b1e7c732c2ae64c571d84d01"
    "ad2c39-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855-57d5191d8b256f765302f884e47ec6488fcb"
    "736337030a93aa4dded3b413c890-c8e0c12353f37b795a4d604b2970a1096d26d43f3570d5d0d1a31ed614461b7a-6468a93ed0e2a9"
    "06ffcc3eda75bff34cf830e4e96b0aa54e6423730a925f8618-4f698c8b3bc25f6700558bf4be5324164f6a183357a881acd50308570"
    "ce190f6-5d15c5bebef8d7aa51b21fd187e5faa95eba4a213254355bc69e0648013599f7-30106ed84518c6ca7aca08e2c0ee188755f"
    "512cc0cb2d7da8914cc48c1ad6dcc-d1659583b645d39ac929b803dbb9af4c81446eccb5371fd9ee7636a8f1be5bed-27b2a5d1e8db0"
    "08bacefe6019f63922bbd65926de90bb1b527ee597477d2f365-a610dc5c215589aab7a784e1c07acef3e16d53ef00f08de793899964"
    "956f4e2a-ebad24d351bb79b3068a60627c74372a07cb8cc9532ce106773402ad2515a2b4-0731cda9ecbdd902acab13604efda0f9db"
    "eaf411bc42bdddff8454b69a62f54b-29a6fd2a22be417a201f63f60f733e003ad4800d71b1f7f2c74c84f44cff5369-f60c2bb2d8ee"
    "be1c191f4b8b819844414dd1bce243645635a094f9f92665a58e-de55055960d843e714290e7bcddd9a2ce64957c46fb8f915dbe6210"
    "96a3c6e19-1a7ae2a0c3de32df60ffc18f21a20f8dcf8bf3bc8cb018bb269b540533868829-8d7592ed77ab6dd494a07c9a34621036d"
    "d5a16a0f61904ed5f10ee9598cae1c8-9dc7303392f1744a56913ef6f5434b24ac87a6bdcd4087c2b300d7091a64b609-7760016be2a"
    "35e299f922665fd965219cf474403c937bdad7ffd0928a4aeb109";
constexpr const char* kNoDevice = "9d9e988e92ae288b4b7d10a5ac69bc37785420d97a5bede70a408c052779b3fd";
constexpr std::pair<const char*, const char*> kDevices[] = {
    {"NVIDIA H100 80GB HBM3", "787ddf6a5052b0efd4c3555369e0ce1c7632a88fba08e0c44a500e845e5151be"},
    {"NVIDIA H200", "d2391e65dca51aa0ad57d367cdda76de43262181b7e33673fa5ce368802bd453"},
    {"NVIDIA A100-SXM4-80GB", "cbf2b3d7a9ef79a3a32bc2e0fdb55d156097a4a2af1f35851bd65eb1c8e03261"}};

Fact known(const std::string& value, const std::string& details = {}) { return {true, value, "test", {}, details}; }

Fingerprint host(const std::string& torch, const std::string& cuda, const std::string& gpu) {
  Fingerprint facts;
  facts.set(Facet::kTorch, known("git=1\nkey=2\nrecord=3\nversion=" + torch));
  facts.set(Facet::kTriton, known("key=4\nversion=3.9.0", "triton_key=" + std::string(kTritonKey)));
  facts.set(Facet::kCuda, known(cuda));
  facts.set(Facet::kGpu, known(gpu));
  return facts;
}

std::string hash_of(const Fingerprint& facts) {
  const auto hash = torch_system_hash(facts);
  return hash ? *hash : hash.error().to_string();
}

std::string hex(const std::string& text) { return codec::digest_of(text).to_hex(); }

std::string device(const std::string& name) { return "device=" + name + "; cc=9.0; sms=132; memory_gib=80"; }

TEST(TorchSystemHash, EqualsWhatTorchSaid) {
  EXPECT_EQ(hash_of(host("2.15.0+cu132", "driver=none\ntorch=13.2", "none")), kNoDevice);
  for (const auto& [name, hash] : kDevices) {
    EXPECT_EQ(hash_of(host("2.15.0+cu132", "driver=13\ntorch=13.2", device(name))), hash) << name;
  }
}

TEST(TorchSystemHash, KnowsNeitherTheDriverNorTheSizeOfTheDevice) {
  EXPECT_EQ(
      hash_of(host("2.15.0+cu132", "driver=14\ntorch=13.2", "device=NVIDIA H200; cc=9.0; sms=114; memory_gib=141")),
      hash_of(host("2.15.0+cu132", "driver=13\ntorch=13.2", device("NVIDIA H200"))));
}

TEST(TorchSystemHash, IsThatOfNothingWithoutADeviceBefore215) {
  EXPECT_EQ(hash_of(host("2.9.1+cu128", "driver=none\ntorch=12.8", "none")), hex("{}"));
  EXPECT_EQ(hash_of(host("2.14.1", "driver=none\ntorch=none", "none")), hex("{}"));
  EXPECT_EQ(hash_of(host("3.0.0", "driver=none\ntorch=none", "none")), kNoDevice);
  EXPECT_EQ(hash_of(host("2.9.1+cu128", "driver=13\ntorch=13.2", device(kDevices[0].first))), kDevices[0].second);
}

TEST(TorchSystemHash, SaysNullWithoutTriton) {
  Fingerprint facts = host("2.15.0", "driver=none\ntorch=none", "none");
  facts.set(Facet::kTriton, known("none"));
  EXPECT_EQ(hash_of(facts), hex(R"({"version": {"triton": null}})"));
}

/// torch.cuda answers with an error there, which get_system takes for no device.
TEST(TorchSystemHash, HasNoDeviceWhereTorchCannotUseIt) {
  EXPECT_EQ(hash_of(host("2.15.0+cpu", "driver=13\ntorch=none", device("X"))), kNoDevice);
  EXPECT_EQ(hash_of(host("2.15.0+cu132", "driver=12\ntorch=13.2", device("X"))), kNoDevice);
}

TEST(TorchSystemHash, TakesTheFirstOfUnequalDevices) {
  Fingerprint facts = host("2.15.0+cu132", "driver=13\ntorch=13.2", device("A") + "\n" + device("NVIDIA H200"));
  EXPECT_EQ(torch_system_hash(facts).error().code(), ErrorCode::kUnavailable);
  facts.set(Facet::kGpu, known(device("A") + "\n" + device("NVIDIA H200"), "gpu0.name=NVIDIA H200\ngpu1.name=A"));
  EXPECT_EQ(hash_of(facts), hash_of(host("2.15.0+cu132", "driver=13\ntorch=13.2", device("NVIDIA H200"))));
}

TEST(TorchSystemHash, WritesNamesAsPythonDoes) {
  EXPECT_EQ(hash_of(host("2.15.0", "driver=13\ntorch=13.2", device("G\xc3\xa9 \"1\" \\"))),
            hex(R"({"device": {"name": "G\u00e9 \"1\" \\"}, "version": {"cuda": "13.2", "triton": ")" +
                std::string(kTritonKey) + R"("}})"));
}

TEST(TorchSystemHash, IsNotGuessed) {
  const Fingerprint whole = host("2.15.0+cu132", "driver=13\ntorch=13.2", device("X"));
  for (Facet facet : {Facet::kTorch, Facet::kTriton, Facet::kCuda, Facet::kGpu}) {
    Fingerprint facts = whole;
    facts.set(facet, {false, {}, {}, "it is gone", {}});
    const auto hash = torch_system_hash(facts);
    ASSERT_FALSE(hash) << to_string(facet);
    EXPECT_EQ(hash.error().code(), ErrorCode::kUnavailable);
    EXPECT_NE(hash.error().what().find("it is gone"), std::string::npos);
  }
  Fingerprint short_of_key = whole;
  short_of_key.set(Facet::kTriton, known("key=4\nversion=3.9.0"));
  EXPECT_EQ(torch_system_hash(short_of_key).error().code(), ErrorCode::kUnavailable);
  Fingerprint rocm = host("2.15.0", "driver=13\nhip=6.2\ntorch=none", device("X"));
  EXPECT_EQ(torch_system_hash(rocm).error().code(), ErrorCode::kUnavailable);
  Fingerprint none = whole;
  none.set(Facet::kTorch, known("none"));
  EXPECT_EQ(torch_system_hash(none).error().code(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace inductorfs::fingerprint
