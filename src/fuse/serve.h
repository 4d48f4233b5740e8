// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <chrono>
#include <exception>
#include <utility>

#include "channel.h"
#include "kernel_reply.h"

struct fuse_lowlevel_ops;  // libfuse's

namespace inductorfs::fuse {

/// Runs one request that reaches the file system: counts it, measures it, and sees that it is answered once.
/// `call(operations, reply)` must answer through the reply or move it to an object that will; an exception becomes
/// EIO.
template <typename Call>
void serve(fuse_req* request, Operation operation, Call&& call) noexcept {
  using Time = std::chrono::steady_clock;
  Channel& channel = channel_of(request);
  channel.count(operation);
  const Time::time_point start = Time::now();
  KernelReply reply(channel, request, operation);
  try {
    std::forward<Call>(call)(channel.operations(), reply);
  } catch (const std::exception& failure) {
    channel.log_exception(operation, failure.what());
    if (reply.due()) reply.errno_value(EIO);
  } catch (...) {
    channel.log_exception(operation, "unknown exception");
    if (reply.due()) reply.errno_value(EIO);
  }
  const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Time::now() - start);
  channel.count_time(operation, static_cast<uint64_t>(took.count()));
}

/// Answers a request whose answer is known beforehand: with no file system, no lock and no clock.
inline void refuse(fuse_req* request, Operation operation, int errno_value) noexcept {
  Channel& channel = channel_of(request);
  channel.count(operation);
  KernelReply(channel, request, operation).errno_value(errno_value);
}

/// Each of these fills its part of libfuse's table.
void add_name_operations(fuse_lowlevel_ops& table) noexcept;
void add_attribute_operations(fuse_lowlevel_ops& table) noexcept;
void add_data_operations(fuse_lowlevel_ops& table) noexcept;

}  // namespace inductorfs::fuse
