// SPDX-License-Identifier: Apache-2.0
// Plays a recording of torch_record.py, which has the grammar, as fast as the files answer.
//   replay RECORDING CONTENTS DIRECTORY PROCESSES
// CONTENTS is the directory that the recorded job left; DIRECTORY stands for it now. All processes begin together and
// play everything. Prints {"seconds": until the last has ended, "calls": of one process, "different": processes that
// got other answers than the job}, which is an error if one plays alone.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBuffer = size_t{1} << 20;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "replay: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

/// One line: its paths lead to DIRECTORY, its bytes are in memory.
struct Call {
  int (*play)(const Call&);
  std::vector<std::string> paths;
  std::vector<long> numbers;
  const char* bytes = nullptr;  ///< of a write
  int error = 0;                ///< that the job got
  std::string line;
};

std::map<long, int> descriptors;  // by slot
std::vector<char> buffer(kBuffer);

int held(const Call& call) {
  const auto found = descriptors.find(call.numbers[0]);
  return found == descriptors.end() ? -1 : found->second;
}
size_t size_of(const Call& call, size_t at) { return std::min(static_cast<size_t>(call.numbers[at]), kBuffer); }
const char* path_of(const Call& call) { return call.paths[0].c_str(); }
int as_result(ssize_t value) { return value < 0 ? -1 : 0; }

int play_open(const Call& call) {
  const int file =
      ::open(path_of(call), static_cast<int>(call.numbers[1]) | O_CLOEXEC, static_cast<mode_t>(call.numbers[2]));
  if (file >= 0) descriptors[call.numbers[0]] = file;
  return as_result(file);
}
int play_close(const Call& call) {
  const int file = held(call);
  descriptors.erase(call.numbers[0]);
  return ::close(file);
}
int play_map(const Call& call) {
  const auto size = static_cast<size_t>(call.numbers[1]);
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, held(call), call.numbers[2]);
  if (at == MAP_FAILED) return -1;
  struct stat facts {};
  ::fstat(held(call), &facts);
  const auto there = static_cast<size_t>(std::max(0L, facts.st_size - call.numbers[2]));
  for (size_t i = 0; i < std::min(size, there); i += kPage) buffer[0] = static_cast<const volatile char*>(at)[i];
  return ::munmap(at, size);
}
int play_list(const Call& call) { return as_result(::syscall(SYS_getdents64, held(call), buffer.data(), 32768)); }
int play_stat(const Call& call) {
  struct stat facts {};
  return ::lstat(path_of(call), &facts);
}
int play_fstat(const Call& call) {
  struct stat facts {};
  return ::fstat(held(call), &facts);
}
int play_ioctl(const Call& call) {
  termios settings{};
  return ::ioctl(held(call), TCGETS, &settings);
}
int play_read(const Call& call) { return as_result(::read(held(call), buffer.data(), size_of(call, 1))); }
int play_pread(const Call& call) {
  return as_result(::pread(held(call), buffer.data(), size_of(call, 1), call.numbers[2]));
}
int play_write(const Call& call) {
  return as_result(::write(held(call), call.bytes, static_cast<size_t>(call.numbers[1])));
}
int play_pwrite(const Call& call) {
  return as_result(::pwrite(held(call), call.bytes, static_cast<size_t>(call.numbers[1]), call.numbers[2]));
}
int play_seek(const Call& call) { return as_result(::lseek(held(call), call.numbers[1], SEEK_SET)); }
int play_ftruncate(const Call& call) { return ::ftruncate(held(call), call.numbers[1]); }
int play_fchmod(const Call& call) { return ::fchmod(held(call), static_cast<mode_t>(call.numbers[1])); }
int play_fsync(const Call& call) { return ::fsync(held(call)); }
/// The job asks again until it has the lock, which several processes at once have to do too: here the kernel waits.
int play_flock(const Call& call) {
  const int how = static_cast<int>(call.numbers[1]);
  return ::flock(held(call), call.error == 0 ? how & ~LOCK_NB : how);
}
int play_mkdir(const Call& call) { return ::mkdir(path_of(call), static_cast<mode_t>(call.numbers[0])); }
int play_rmdir(const Call& call) { return ::rmdir(path_of(call)); }
int play_unlink(const Call& call) { return ::unlink(path_of(call)); }
int play_rename(const Call& call) { return ::rename(path_of(call), call.paths[1].c_str()); }
int play_link(const Call& call) { return ::link(path_of(call), call.paths[1].c_str()); }
int play_symlink(const Call& call) { return ::symlink(path_of(call), call.paths[1].c_str()); }
int play_readlink(const Call& call) { return as_result(::readlink(path_of(call), buffer.data(), kBuffer)); }
int play_chmod(const Call& call) { return ::chmod(path_of(call), static_cast<mode_t>(call.numbers[0])); }
int play_truncate(const Call& call) { return ::truncate(path_of(call), call.numbers[0]); }

/// `shape`: of the fields between the name and the errno: n a number, p a path, t a text as it is, b where bytes are
/// from.
struct Kind {
  std::string_view name;
  std::string_view shape;
  int (*play)(const Call&);
};
constexpr std::array kKinds{Kind{"open", "nnnp", play_open},      Kind{"close", "n", play_close},
                            Kind{"read", "nn", play_read},        Kind{"pread", "nnn", play_pread},
                            Kind{"write", "nnnb", play_write},    Kind{"pwrite", "nnnb", play_pwrite},
                            Kind{"seek", "nn", play_seek},        Kind{"map", "nnn", play_map},
                            Kind{"getdents", "n", play_list},     Kind{"ioctl", "n", play_ioctl},
                            Kind{"fstat", "n", play_fstat},       Kind{"stat", "p", play_stat},
                            Kind{"fsync", "n", play_fsync},       Kind{"ftruncate", "nn", play_ftruncate},
                            Kind{"fchmod", "nn", play_fchmod},    Kind{"flock", "nn", play_flock},
                            Kind{"mkdir", "pn", play_mkdir},      Kind{"rmdir", "p", play_rmdir},
                            Kind{"unlink", "p", play_unlink},     Kind{"rename", "pp", play_rename},
                            Kind{"link", "pp", play_link},        Kind{"symlink", "tp", play_symlink},
                            Kind{"readlink", "p", play_readlink}, Kind{"chmod", "pn", play_chmod},
                            Kind{"truncate", "pn", play_truncate}};

/// The files that the job left, in memory, and zeros.
class Contents {
 public:
  explicit Contents(std::string directory) : directory_(std::move(directory)) {}

  const char* at(const std::string& name, size_t offset, size_t size) {
    const std::string& bytes = whole(name);
    if (offset + size <= bytes.size()) return bytes.data() + offset;
    if (zeros_.size() < size) zeros_.emplace_back(size, '\0');
    for (const std::string& zeros : zeros_) {
      if (zeros.size() >= size) return zeros.data();
    }
    return zeros_.emplace_back(size, '\0').data();
  }

 private:
  const std::string& whole(const std::string& name) {
    auto [found, isnew] = files_.try_emplace(name);
    if (isnew && !name.empty()) {
      std::ifstream file(directory_ + "/" + name, std::ios::binary);
      found->second.assign(std::istreambuf_iterator<char>(file), {});
    }
    return found->second;
  }

  std::string directory_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> zeros_;
};

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char one : line) {
    if (one == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += one;
    }
  }
  return fields;
}

Call call_of(const std::string& line, const std::string& directory, Contents& contents) {
  const std::vector<std::string> fields = fields_of(line);
  const auto* const kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& one) { return one.name == fields[0]; });
  if (kind == kKinds.end() || fields.size() != kind->shape.size() + 2) {
    std::fprintf(stderr, "replay: no call: %s\n", line.c_str());
    std::exit(2);
  }
  Call call;
  call.play = kind->play;
  call.line = line;
  call.error = std::stoi(fields.back());
  for (size_t i = 0; i < kind->shape.size(); ++i) {
    const std::string& field = fields[i + 1];
    if (kind->shape[i] == 'n') call.numbers.push_back(std::stol(field, nullptr, 0));
    if (kind->shape[i] == 'p') call.paths.push_back(directory + "/" + field);
    if (kind->shape[i] == 't') call.paths.push_back(field);
    if (kind->shape[i] == 'b') {
      call.bytes = contents.at(field, static_cast<size_t>(call.numbers[2]), static_cast<size_t>(call.numbers[1]));
    }
  }
  return call;
}

/// Of one process: names with a % are its own.
void mark(std::vector<Call>& calls, int process) {
  for (Call& call : calls) {
    for (std::string& path : call.paths) {
      for (size_t at = 0; (at = path.find('%', at)) != std::string::npos;) path.replace(at, 1, std::to_string(process));
    }
  }
}

/// The number of answers that the job did not get; says the first.
int play(const std::vector<Call>& calls) {
  int different = 0;
  for (const Call& call : calls) {
    const int error = call.play(call) == 0 ? 0 : errno;
    if ((error == 0) == (call.error == 0)) continue;
    if (different++ == 0) {
      std::fprintf(stderr, "replay: %s: %s\n", call.line.c_str(), error == 0 ? "succeeded" : std::strerror(error));
    }
  }
  return different;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "usage: replay RECORDING CONTENTS DIRECTORY PROCESSES\n");
    return 2;
  }
  const int processes = std::atoi(words[4]);
  Contents contents(words[2]);
  std::vector<Call> calls;
  std::ifstream recording(words[1]);
  for (std::string line; std::getline(recording, line);) calls.push_back(call_of(line, words[3], contents));
  ::umask(022);
  std::array<int, 2> gate{};
  std::array<int, 2> ready{};
  if (::pipe2(gate.data(), O_CLOEXEC) != 0 || ::pipe2(ready.data(), O_CLOEXEC) != 0) die("pipe");
  std::vector<pid_t> children;
  char byte = 0;
  for (int i = 0; i < processes; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    mark(calls, i);
    ::close(gate[1]);
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(gate[0], &byte, 1);  // ends when all are ready
    _exit(play(calls) == 0 ? 0 : 3);
  }
  for (int i = 0; i < processes; ++i) {
    if (::read(ready[0], &byte, 1) != 1) die("a process did not begin");
  }
  const auto begin = std::chrono::steady_clock::now();
  ::close(gate[1]);
  int different = 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) die("a process ended early");
    different += WEXITSTATUS(status) == 3;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("{\"seconds\": %.6f, \"calls\": %zu, \"different\": %d}\n", seconds.count(), calls.size(), different);
  return 0;
}
