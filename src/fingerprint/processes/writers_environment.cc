// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "fingerprint/common/compiler_call.h"
#include "fingerprint/processes/opened_process.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/text.h"
#include "inductorfs/fingerprint/variables.h"

// os.environ of Python calls setenv(3), which changes the process's `environ`, not what /proc/PID/environ shows: that
// is the block on the stack that the kernel made at exec. So the array is read from the process's memory.
namespace inductorfs::fingerprint {
namespace {

/// A job has 20 to 200 variables; the kernel lets a process start with 2 MiB of them.
constexpr size_t kVariableLimit = 8192;
constexpr uint64_t kBlockLimit = uint64_t{4} << 20;
constexpr size_t kValueLimit = size_t{64} << 10;
/// What lies this near is read together: the variables of the start lie in one block.
constexpr uint64_t kGap = 1024;
/// What is read of a variable at first; no name of variables() is nearly as long.
constexpr uint64_t kFirstPiece = 256;
constexpr uint64_t kPage = 4096;
/// The array may be replaced while it is read; a process that does that without end is not waited for.
constexpr int kAttempts = 3;

using Values = std::map<std::string, std::string>;

bool is_read(std::string_view name) {
  return find_variable(name) != nullptr || names_compiler(name) || names_job(name);
}

void take(Values& values, std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view name = text.substr(0, equals);
  if (!is_read(name)) return;
  values.emplace(name, text.substr(equals + 1));  // the first of two wins, as in getenv(3)
}

/// The memory of another process through its `mem` file, which must outlive this. Immutable after construction.
class Memory {
 public:
  explicit Memory(const Fd& file) : fd_(file) {}

  /// As much as can be read up to `size`: the rest may not be mapped.
  [[nodiscard]] size_t read(uint64_t address, char* out, size_t size) const {
    // Not pread_full: it drops what came before an error, and the last text may end where the mapping does.
    size_t done = 0;
    while (done < size) {
      const ssize_t got = pread(fd_.get(), out + done, size - done, static_cast<off_t>(address + done));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }
  [[nodiscard]] std::optional<uint64_t> word(uint64_t address) const {
    uint64_t value = 0;
    if (read(address, reinterpret_cast<char*>(&value), sizeof value) != sizeof value) return std::nullopt;
    return value;
  }

 private:
  const Fd& fd_;
};

/// The pointers of the array up to its null; empty when it has no end within the limit.
std::optional<std::vector<uint64_t>> read_array(const Memory& memory, uint64_t address) {
  constexpr size_t kPiece = 512;
  std::vector<uint64_t> pointers;
  while (pointers.size() < kVariableLimit) {
    const size_t have = pointers.size();
    pointers.resize(have + kPiece);
    const size_t got = memory.read(address + have * sizeof(uint64_t), reinterpret_cast<char*>(pointers.data() + have),
                                   kPiece * sizeof(uint64_t)) /
                       sizeof(uint64_t);
    pointers.resize(have + got);
    const auto end = std::find(pointers.begin() + static_cast<ptrdiff_t>(have), pointers.end(), 0);
    if (end != pointers.end()) {
      pointers.erase(end, pointers.end());
      return pointers;
    }
    if (got < kPiece) return std::nullopt;
  }
  return std::nullopt;
}

/// The text at `address`, of which `known` is the beginning; more is read only for a variable that matters.
void take_text(const Memory& memory, uint64_t address, std::string_view known, Values& values) {
  const size_t end = known.find('\0');
  if (end != std::string_view::npos) {
    take(values, known.substr(0, end));
    return;
  }
  const size_t equals = known.find('=');
  const bool named = equals != std::string_view::npos;
  if (named ? !is_read(known.substr(0, equals)) : known.size() >= kFirstPiece) return;
  std::string text(kValueLimit, '\0');
  text.resize(memory.read(address, text.data(), text.size()));
  take(values, std::string_view(text).substr(0, text.find('\0')));
}

/// Reads the texts in address order, neighbours together.
Values read_texts(const Memory& memory, std::vector<uint64_t> pointers) {
  const std::vector<uint64_t> order = pointers;
  std::sort(pointers.begin(), pointers.end());
  std::map<uint64_t, std::string> blocks;
  uint64_t total = 0;
  for (size_t i = 0; i < pointers.size() && total < kBlockLimit;) {
    size_t last = i;
    while (last + 1 < pointers.size() && pointers[last + 1] - pointers[last] <= kGap) ++last;
    // To the end of a page at most: what is behind the last text may not be mapped.
    const uint64_t tail = std::max<uint64_t>(kPage - pointers[last] % kPage, 1);
    const uint64_t size = std::min(pointers[last] - pointers[i] + std::min(tail, kFirstPiece), kBlockLimit - total);
    std::string& block = blocks[pointers[i]];
    block.resize(size);
    block.resize(memory.read(pointers[i], block.data(), block.size()));
    total += size;
    i = last + 1;
  }
  Values values;
  for (const uint64_t pointer : order) {
    const auto next = blocks.upper_bound(pointer);
    if (next == blocks.begin()) continue;
    const auto& [start, block] = *std::prev(next);
    if (pointer - start >= block.size()) continue;
    take_text(memory, pointer, std::string_view(block).substr(pointer - start), values);
  }
  return values;
}

std::optional<LiveEnvironment> from_memory(const OpenedProcess& opened) {
  const uint64_t address = opened.process.environ_address;
  if (address == 0 || !opened.memory) return std::nullopt;
  const Memory memory(opened.memory);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto array = memory.word(address);
    if (!array) return std::nullopt;
    if (*array == 0) return LiveEnvironment{{}, true};  // clearenv(3) leaves a null pointer
    auto pointers = read_array(memory, *array);
    if (!pointers) continue;
    Values values = read_texts(memory, std::move(*pointers));
    if (memory.word(address) == array) return LiveEnvironment{std::move(values), true};
  }
  return std::nullopt;
}

}  // namespace

bool names_job(std::string_view name) {
  // Slurm: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; torch/distributed/elastic/agent/server/local_elastic_agent.py;
  // torch/_inductor/config.py and aten/src/ATen/ParallelCommon.cpp read the numbers of threads.
  static constexpr std::array<std::string_view, 5> kNames = {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "RANK",
                                                             "OMP_NUM_THREADS", "MKL_NUM_THREADS"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::optional<LiveEnvironment> environment_of(const OpenedProcess& opened) {
  if (auto live = from_memory(opened)) return live;
  std::string text(kBlockLimit, '\0');
  const auto size = pread_full(opened.first_environment.get(), text.data(), text.size(), 0);
  if (!size || *size == kBlockLimit) return std::nullopt;
  LiveEnvironment first;
  std::string_view rest = std::string_view(text).substr(0, *size);
  while (!rest.empty()) take(first.values, take_part(rest, '\0'));
  return first;
}

}  // namespace inductorfs::fingerprint
