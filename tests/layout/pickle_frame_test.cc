// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "content_checks.h"

namespace inductorfs::layout {
namespace {

std::string bytes(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

std::string number(uint64_t value, size_t length) {
  std::string out;
  for (size_t i = 0; i < length; ++i) out.push_back(static_cast<char>(static_cast<uint8_t>(value >> (8 * i))));
  return out;
}

std::string framed(const std::string& opcodes) { return "\x95" + number(opcodes.size(), 8) + opcodes; }
std::string pickle(const std::string& opcodes, int protocol = 4) {
  return std::string("\x80") + static_cast<char>(protocol) + opcodes;
}

std::string why(const std::string& text) {
  const auto checked = check_pickle_frame(text);
  if (checked) return "accepted";
  EXPECT_EQ(checked.error().code(), ErrorCode::kCorrupt);
  return checked.error().what();
}

/// pickle.dumps of CPython 3.11: numbers, texts, bytes, a function and a set in protocols 2 to 5, and an object in 4.
const std::vector<std::string> kRealPickles = {
    "80027d71002858010000006171015d7102284b014740040000000000004e635f636f646563730a656e636f64650a71035801"
    "00000078710458060000006c6174696e3171058671065271078a0d00000040eaed7446d09c2c9f0c65580100000074710888"
    "4afdffffff867109580100000066710a635f5f6275696c74696e5f5f0a6c656e0a710b580100000073710c635f5f6275696c"
    "74696e5f5f0a66726f7a656e7365740a710d5d710e4b076185710f52711058010000007571115803000000c3a90a7112752e",
    "80037d71002858010000006171015d7102284b014740040000000000004e43017871038a0d00000040eaed7446d09c2c9f0c"
    "655801000000747104884afdffffff8671055801000000667106636275696c74696e730a6c656e0a71075801000000737108"
    "636275696c74696e730a66726f7a656e7365740a71095d710a4b076185710b52710c580100000075710d5803000000c3a90a"
    "710e752e",
    "80049562000000000000007d94288c0161945d94284b014740040000000000004e430178948a0d00000040eaed7446d09c2c"
    "9f0c658c017494884afdffffff86948c0166948c086275696c74696e73948c036c656e9493948c017394284b0791948c0175"
    "948c03c3a90a94752e",
    "80059562000000000000007d94288c0161945d94284b014740040000000000004e430178948a0d00000040eaed7446d09c2c"
    "9f0c658c017494884afdffffff86948c0166948c086275696c74696e73948c036c656e9493948c017394284b0791948c0175"
    "948c03c3a90a94752e",
    "8004957a000000000000008c057479706573948c0f53696d706c654e616d6573706163659493942952947d94288c0161944b"
    "018c0162945d947d948c017894284b014b024b034b04749473618c0163948c086275696c74696e73948c0962797465617272"
    "61799493944302797994859452948c016494680c8c05736c69636594939475622e",
};

TEST(PickleFrame, TakesWhatCPythonWrites) {
  for (const std::string& hex : kRealPickles) EXPECT_EQ(why(bytes(hex)), "accepted") << hex;
}

TEST(PickleFrame, RefusesEveryPrefixOfThem) {
  for (const std::string& hex : kRealPickles) {
    const std::string whole = bytes(hex);
    for (size_t cut = 0; cut < whole.size(); ++cut) {
      EXPECT_NE(why(whole.substr(0, cut)), "accepted") << hex << " cut at " << cut;
    }
  }
}

TEST(PickleFrame, RefusesMoreAfterStop) {
  EXPECT_EQ(why(pickle("N.")), "accepted");
  EXPECT_NE(why(pickle("N..")).find("more after STOP"), std::string::npos);
}

TEST(PickleFrame, WantsAKnownProtocol) {
  for (const int protocol : {2, 3, 4, 5}) EXPECT_EQ(why(pickle("N.", protocol)), "accepted");
  EXPECT_NE(why(pickle("N.", 1)), "accepted");
  EXPECT_NE(why(pickle("N.", 6)), "accepted");
  EXPECT_NE(why("N."), "accepted");
  EXPECT_NE(why("\x80"), "accepted");
  EXPECT_NE(why(""), "accepted");
}

TEST(PickleFrame, HoldsFramesToTheirLength) {
  EXPECT_EQ(why(pickle(framed("N."))), "accepted");
  EXPECT_EQ(why(pickle(framed("N") + framed("N."))), "accepted");
  EXPECT_NE(why(pickle("\x95" + number(3, 8) + "N.")).find("longer than what is there"), std::string::npos);
  EXPECT_NE(why(pickle("\x95" + number(UINT64_MAX, 8) + "N.")).find("longer than what is there"), std::string::npos);
  EXPECT_NE(why(pickle("\x95" + number(3, 7))).find("cut off"), std::string::npos);
  EXPECT_NE(why(pickle("\x95" + number(12, 8) + framed("N") + "N.")).find("a frame in a frame"), std::string::npos);
}

TEST(PickleFrame, LetsNoOpcodeReachOutOfItsFrame) {
  // SHORT_BINBYTES of 4 bytes in a frame that ends after 2 of them.
  EXPECT_NE(why(pickle("\x95" + number(4, 8) + "C\x04xxxx.")).find("cut off in an argument"), std::string::npos);
  EXPECT_NE(why(pickle("\x95" + number(2, 8) + "J\x01\x02\x03\x04.")).find("cut off in an argument"),
            std::string::npos);
}

TEST(PickleFrame, TakesLargeBytesBetweenFrames) {
  const std::string large(70000, 'x');
  EXPECT_EQ(why(pickle(framed("N") + "B" + number(large.size(), 4) + large + framed("N."))), "accepted");
  EXPECT_EQ(why(pickle(framed("N") + "\x8e" + number(large.size(), 8) + large + framed("N."))), "accepted");
  EXPECT_NE(why(pickle("B" + number(large.size() + 2, 4) + large + ".")).find("cut off"), std::string::npos);
  EXPECT_NE(why(pickle("\x8e" + number(UINT64_MAX, 8) + large + ".")).find("cut off"), std::string::npos);
}

TEST(PickleFrame, RefusesWhatIsNoOpcode) {
  EXPECT_NE(why(pickle(std::string("N\0.", 3))).find("an unknown opcode"), std::string::npos);
  EXPECT_NE(why(pickle("N\xff.")).find("an unknown opcode"), std::string::npos);
}

TEST(PickleFrame, ReadsTextArgumentsToTheirNewline) {
  EXPECT_EQ(why(pickle("cbuiltins\nlen\n.")), "accepted");
  EXPECT_NE(why(pickle("cbuiltins\n.")), "accepted");
  EXPECT_EQ(why(pickle("I01\n.")), "accepted");
  EXPECT_NE(why(pickle("I01.")), "accepted");
}

}  // namespace
}  // namespace inductorfs::layout
