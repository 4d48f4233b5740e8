// SPDX-License-Identifier: Apache-2.0
// What the store's calls cost, beside the same bytes in a file each, with the same calls as a program would make.
//   store_costs store|files DIRECTORY COUNT BYTES     fills, reads and empties it; prints {"put": s, "open": s,
//   "evict": s} store_costs fill DIRECTORY COUNT BYTES            fills a store and leaves it; prints {} store_costs
//   reopen DIRECTORY                      opens a store and closes it; prints {"reopen": s}
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "inductorfs/store/blob_store.h"

namespace inductorfs::store {
namespace {

constexpr uint64_t kLimit = uint64_t{64} << 30;

template <typename T>
T get(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "store_costs: %s\n", result.error().to_string().c_str());
  std::exit(1);
}
void get(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "store_costs: %s\n", result.error().to_string().c_str());
  std::exit(1);
}
void check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

double seconds_of(const auto& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Blobs that differ: each is a window of the same random bytes. Their digests are made before the clock starts.
struct Blobs {
  std::string whole;
  size_t size;
  std::vector<codec::Digest> digests;

  Blobs(size_t count, size_t bytes) : whole(bytes + count, '\0'), size(bytes) {
    std::minstd_rand random(1);
    for (char& one : whole) one = static_cast<char>(random());
    for (size_t i = 0; i < count; ++i) digests.push_back(codec::digest_of((*this)[i]));
  }
  std::string_view operator[](size_t number) const { return {whole.data() + number, size}; }
  [[nodiscard]] std::vector<size_t> shuffled() const {
    std::vector<size_t> order(digests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::minstd_rand(2));
    return order;
  }
};

std::unique_ptr<BlobStore> open_store(const std::string& directory) {
  static Counters counters;
  StoreOptions options;
  options.directory = directory;
  options.size_limit = kLimit;
  auto store = get(BlobStore::open(options, counters));
  store->set_eviction_guard([](const codec::Digest&) { return true; });
  return store;
}

void put_all(BlobStore& store, const Blobs& blobs) {
  for (size_t i = 0; i < blobs.digests.size(); ++i) {
    const auto writer = get(store.create(blobs.size));
    get(writer->append(blobs[i]));
    get(writer->commit(blobs.digests[i]));
  }
}

/// The one place that knows what open_blob() gives.
void read_blob(BlobStore& store, const codec::Digest& digest, std::string& buffer) {
  const auto blob = get(store.open_blob(digest));
  check(get(blob.read(buffer.data(), buffer.size(), 0)) == buffer.size(), "a blob is too short");
}

void measure_store(const std::string& directory, const Blobs& blobs) {
  auto store = open_store(directory);
  const double put = seconds_of([&] { put_all(*store, blobs); });
  std::string buffer(blobs.size, '\0');
  const double open = seconds_of([&] {
    for (const size_t i : blobs.shuffled()) {
      check(store->find(blobs.digests[i]).has_value(), "a blob is not there");
      read_blob(*store, blobs.digests[i], buffer);
    }
  });
  const double evict = seconds_of([&] { (void)store->free_space(kLimit); });
  check(store->usage().blobs == 0, "blobs were not evicted");
  std::printf("{\"put\": %.6f, \"open\": %.6f, \"evict\": %.6f}\n", put, open, evict);
}

std::string file_of(const std::string& directory, const codec::Digest& digest) {
  const std::string hex = digest.to_hex();
  return directory + "/" + hex.substr(0, 2) + "/" + hex.substr(2);
}

void measure_files(const std::string& directory, const Blobs& blobs) {
  check(::mkdir(directory.c_str(), 0755) == 0, directory.c_str());
  const double put = seconds_of([&] {
    const std::string temporary = directory + "/temporary";
    for (size_t i = 0; i < blobs.digests.size(); ++i) {
      const std::string path = file_of(directory, blobs.digests[i]);
      const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
      check(fd >= 0, temporary.c_str());
      check(::write(fd, blobs[i].data(), blobs.size) == static_cast<ssize_t>(blobs.size), "write");
      check(::close(fd) == 0, "close");
      (void)::mkdir(path.substr(0, path.rfind('/')).c_str(), 0755);  // it mostly is there
      check(::rename(temporary.c_str(), path.c_str()) == 0, path.c_str());
    }
  });
  std::string buffer(blobs.size, '\0');
  const double open = seconds_of([&] {
    for (const size_t i : blobs.shuffled()) {
      const std::string path = file_of(directory, blobs.digests[i]);
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      check(fd >= 0 && ::read(fd, buffer.data(), buffer.size()) == static_cast<ssize_t>(buffer.size()), path.c_str());
      ::close(fd);
    }
  });
  const double evict = seconds_of([&] {
    for (const auto& digest : blobs.digests) check(::unlink(file_of(directory, digest).c_str()) == 0, "unlink");
  });
  std::printf("{\"put\": %.6f, \"open\": %.6f, \"evict\": %.6f}\n", put, open, evict);
}

int run(const std::vector<std::string>& words) {
  const std::string& what = words[0];
  const std::string& directory = words[1];
  if (what == "reopen") {
    const double seconds = seconds_of([&] { (void)open_store(directory); });
    std::printf("{\"reopen\": %.6f}\n", seconds);
    return 0;
  }
  if (words.size() != 4) return 2;
  const Blobs blobs(std::stoul(words[2]), std::stoul(words[3]));
  if (what == "store") measure_store(directory, blobs);
  if (what == "files") measure_files(directory, blobs);
  if (what == "fill") {
    const auto store = open_store(directory);
    put_all(*store, blobs);
    std::puts("{}");
  }
  return 0;
}

}  // namespace
}  // namespace inductorfs::store

int main(int count, char** arguments) {
  if (count < 3) {
    std::fputs("usage: store_costs store|files|fill DIRECTORY COUNT BYTES | reopen DIRECTORY\n", stderr);
    return 2;
  }
  return inductorfs::store::run({arguments + 1, arguments + count});
}
