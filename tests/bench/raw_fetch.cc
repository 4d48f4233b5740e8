// SPDX-License-Identifier: Apache-2.0
// What no cache over this link goes below: all values in one pipeline on one connection, written to one file.
//
//   raw_fetch HOST PORT FILE [--one-by-one]     the keys are lines of hexadecimal digits of the standard input
//
// Prints {"seconds", "bytes"}. One connection, made before the clock starts; the file is not synced.
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// Writes the value of the next reply to the file; returns its size.
size_t take(redisContext* server, int file) {
  redisReply* reply = nullptr;
  if (redisGetReply(server, reinterpret_cast<void**>(&reply)) != REDIS_OK || reply->type != REDIS_REPLY_STRING) {
    std::fprintf(stderr, "raw_fetch: no value: %s\n", server->errstr);
    std::exit(1);
  }
  const size_t size = reply->len;
  if (::write(file, reply->str, size) != static_cast<ssize_t>(size)) {
    std::perror("raw_fetch: write");
    std::exit(1);
  }
  freeReplyObject(reply);
  return size;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    std::fprintf(stderr, "usage: raw_fetch HOST PORT FILE [--one-by-one]\n");
    return 2;
  }
  const bool one_by_one = count > 4 && std::strcmp(words[4], "--one-by-one") == 0;
  std::vector<std::string> keys;
  for (std::string line; std::getline(std::cin, line);) {
    std::string key;
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      key += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
    }
    keys.push_back(key);
  }
  redisContext* const server = redisConnect(words[1], std::atoi(words[2]));
  const int file = ::open(words[3], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (server == nullptr || server->err != 0 || file < 0) {
    std::fprintf(stderr, "raw_fetch: no server or no file\n");
    return 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  size_t bytes = 0;
  for (const std::string& key : keys) {
    redisAppendCommand(server, "GET %b", key.data(), key.size());
    if (one_by_one) bytes += take(server, file);
  }
  for (size_t i = 0; !one_by_one && i < keys.size(); ++i) bytes += take(server, file);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("{\"seconds\": %.6f, \"bytes\": %zu}\n", seconds.count(), bytes);
  ::close(file);
  redisFree(server);
  return 0;
}
