// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/guarded.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace inductorfs {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kDeadline{10};

/// Waits for a condition; false when it did not hold in time.
bool wait_for(const std::function<bool()>& condition, steady_clock::duration time = kDeadline) {
  const auto deadline = steady_clock::now() + time;
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Says whether a thread of this process sleeps in the kernel: it waits for a lock, in these tests.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") S") != std::string::npos;
}

TEST(SharedGuarded, LetsAWriterInAlthoughReadersOverlap) {
  SharedGuarded<int> value(0);
  std::atomic<bool> written{false};
  std::atomic<bool> given_up{false};
  std::atomic<int> entered{0};
  std::vector<std::jthread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      // Each stays until the other one has come, so that the value is never without a reader; unless the other one is
      // kept out, which a lock may do for the sake of the writer.
      while (!written && !given_up) {
        value.read([&](const int&) {
          const int own = ++entered;
          (void)wait_for([&] { return entered > own || given_up; }, std::chrono::milliseconds(100));
        });
      }
    });
  }
  ASSERT_TRUE(wait_for([&] { return entered > 2; }));
  std::jthread writer([&] {
    value.write([&](int& number) { ++number; });
    written = true;
  });
  EXPECT_TRUE(wait_for([&] { return written.load(); }));
  given_up = true;
}

TEST(SharedGuarded, LetsAReaderReadAgainWhileAWriterWaits) {
  SharedGuarded<int> value(1);
  std::atomic<pid_t> writer_id{0};
  std::jthread writer;
  value.read([&](const int&) {
    writer = std::jthread([&] {
      writer_id = ::gettid();
      value.write([](int& number) { ++number; });
    });
    ASSERT_TRUE(wait_for([&] { return writer_id != 0 && is_asleep(writer_id); }));
    EXPECT_EQ(value.read([](const int& number) { return number; }), 1);
  });
  writer.join();
  EXPECT_EQ(value.read([](const int& number) { return number; }), 2);
}

TEST(SharedGuarded, LetsAReaderInBeforeTheSameWriterWritesAgain) {
  constexpr int kRounds = 200;
  SharedGuarded<int> value(0);
  std::atomic<pid_t> reader_id{0};
  std::atomic<int> seen{-1};
  for (int round = 0; round < kRounds; ++round) {
    std::jthread reader;
    seen = -1;
    reader_id = 0;
    value.write([&](int& number) {
      number = 1;
      reader = std::jthread([&] {
        reader_id = ::gettid();
        seen = value.read([](const int& now) { return now; });
      });
      ASSERT_TRUE(wait_for([&] { return reader_id != 0 && is_asleep(reader_id); }));
    });
    value.write([&](int& number) { number = 2; });  // at once: the reader has hardly heard of the first one's end
    reader.join();
    ASSERT_EQ(seen, 1) << "the reader was kept out in round " << round;
  }
}

TEST(SharedGuarded, LetsNobodyInBesideAWriter) {
  SharedGuarded<int> value(0);
  std::atomic<int> torn{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2000; ++round) {
        if ((round + i) % 4 == 0) {
          value.write([](int& number) {
            ++number;  // odd while it is written
            std::this_thread::yield();
            ++number;
          });
        } else if (value.read([](const int& number) { return number % 2; }) != 0) {
          ++torn;
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(value.read([](const int& number) { return number; }), 4 * 500 * 2);
}

}  // namespace
}  // namespace inductorfs
