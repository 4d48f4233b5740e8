// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "content_checks.h"

/// The opcodes of CPython's Lib/pickletools.py, by how long their argument is. Torch writes protocol 4 (pickle.dumps,
/// CPython before 3.14) or 5; its large constants stand outside of frames (Modules/_pickle.c: _Pickler_write_bytes), so
/// that frames alone do not lead from the first byte to the last: each opcode has to be stepped over.
namespace inductorfs::layout {
namespace {

constexpr uint8_t kProtocolOpcode = 0x80;
constexpr uint8_t kFrameOpcode = 0x95;
constexpr uint8_t kStopOpcode = '.';
constexpr uint8_t kFirstProtocol = 2;
constexpr uint8_t kLastProtocol = 5;
constexpr size_t kFrameLengthSize = 8;

/// What follows an opcode: a number of bytes up to 8, or one of these.
enum Argument : uint8_t {
  kUnknown = 0xff,
  kLine = 0xfe,  ///< text up to a newline
  kTwoLines = 0xfd,
  kCounted1 = 0xf1,  ///< a length of one byte, then that many
  kCounted4 = 0xf4,
  kCounted8 = 0xf8,
};
constexpr uint8_t kCountedMask = 0x0f;

constexpr std::array<uint8_t, 256> make_arguments() {
  std::array<uint8_t, 256> table{};
  for (uint8_t& argument : table) argument = kUnknown;
  const auto set = [&table](std::string_view opcodes, uint8_t argument) {
    for (const char opcode : opcodes) table[static_cast<uint8_t>(opcode)] = argument;
  };
  set("N]ael)t}dsu02(1RboQ", 0);
  // NEWOBJ, TUPLE1-3, NEWTRUE, NEWFALSE, EMPTY_SET, ADDITEMS, FROZENSET, NEWOBJ_EX, STACK_GLOBAL, MEMOIZE, buffers.
  set("\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98", 0);
  set("Khq\x82", 1);  // BININT1, BINGET, BINPUT, EXT1
  set("M\x83", 2);    // BININT2, EXT2
  set("Jjr\x84", 4);  // BININT, LONG_BINGET, LONG_BINPUT, EXT4
  set("G", 8);        // BINFLOAT
  set("ILSVFgpP", kLine);
  set("ci", kTwoLines);  // GLOBAL, INST
  set("\x8aUC\x8c", kCounted1);
  set("\x8bTBX", kCounted4);
  set("\x8e\x96\x8d", kCounted8);
  table[kProtocolOpcode] = 1;
  table[kStopOpcode] = 0;
  return table;
}
constexpr std::array<uint8_t, 256> kArguments = make_arguments();

/// Steps from opcode to opcode. Confined to the thread of one check.
class Walker {
 public:
  explicit Walker(std::string_view bytes) : bytes_(bytes) {}

  Result<void> walk() {
    if (bytes_.size() < 2 || byte(0) != kProtocolOpcode) return broken("no pickle");
    if (byte(1) < kFirstProtocol || byte(1) > kLastProtocol) return broken("an unknown protocol");
    at_ = 2;
    while (at_ < bytes_.size()) {
      const uint8_t opcode = byte(at_);
      INDUCTORFS_TRY(opcode == kFrameOpcode ? frame() : step(opcode));
      if (opcode == kStopOpcode) return stopped();
    }
    return broken("cut off: no STOP");
  }

 private:
  tl::unexpected<Error> broken(std::string_view what) const {
    return fail(ErrorCode::kCorrupt, "pickle, byte " + std::to_string(at_) + ": " + std::string(what));
  }
  [[nodiscard]] uint8_t byte(size_t at) const { return static_cast<uint8_t>(bytes_[at]); }
  [[nodiscard]] size_t left() const { return limit() - at_; }
  /// An opcode and its argument lie within one frame, or outside of all.
  [[nodiscard]] size_t limit() const { return at_ < frame_end_ ? frame_end_ : bytes_.size(); }

  [[nodiscard]] uint64_t number(size_t at, size_t length) const {
    uint64_t value = 0;
    for (size_t i = length; i > 0; --i) value = (value << 8U) | byte(at + i - 1);
    return value;
  }

  Result<void> frame() {
    if (at_ < frame_end_) return broken("a frame in a frame");
    if (left() < 1 + kFrameLengthSize) return broken("cut off in a frame's length");
    const uint64_t length = number(at_ + 1, kFrameLengthSize);
    at_ += 1 + kFrameLengthSize;
    if (length > bytes_.size() - at_) return broken("cut off: a frame is longer than what is there");
    frame_end_ = at_ + static_cast<size_t>(length);
    return {};
  }

  Result<void> step(uint8_t opcode) {
    const uint8_t argument = kArguments[opcode];
    if (argument == kUnknown) return broken("an unknown opcode");
    if (argument == kLine || argument == kTwoLines) return lines(argument == kTwoLines ? 2 : 1);
    if (argument >= kCounted1) return counted(argument & kCountedMask);
    return skip(1 + size_t{argument});
  }

  Result<void> lines(size_t count) {
    size_t end = at_ + 1;
    for (size_t i = 0; i < count; ++i) {
      end = bytes_.find('\n', end);
      if (end == std::string_view::npos) return broken("cut off in a line");
      ++end;
    }
    return skip(end - at_);
  }

  Result<void> counted(size_t width) {
    if (left() < 1 + width) return broken("cut off in a length");
    const uint64_t length = number(at_ + 1, width);
    if (length > left() - 1 - width) return broken("cut off in an argument");
    return skip(1 + width + static_cast<size_t>(length));
  }

  Result<void> skip(size_t length) {
    if (length > left()) return broken("cut off in an argument");
    at_ += length;
    return {};
  }

  [[nodiscard]] Result<void> stopped() const {
    if (at_ < frame_end_) return broken("a frame is longer than what is there");
    if (at_ < bytes_.size()) return broken("more after STOP");
    return {};
  }

  std::string_view bytes_;
  size_t at_ = 0;
  size_t frame_end_ = 0;  ///< of the frame that at_ is in, when it is beyond at_
};

}  // namespace

Result<void> check_pickle_frame(std::string_view bytes) { return Walker(bytes).walk(); }

}  // namespace inductorfs::layout
