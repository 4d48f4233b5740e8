// SPDX-License-Identifier: Apache-2.0
#define FUSE_USE_VERSION 314
#include "pending_request.h"

#include <fcntl.h>
#include <fuse_lowlevel.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "inductorfs/base/fd.h"
#include "inductorfs/base/number.h"
#include "inductorfs/base/process_start.h"

namespace inductorfs::fuse {
namespace {

constexpr uint64_t kStatusLimit = 1U << 16;

/// "0000000000000100" says that the ninth signal is pending.
uint64_t signal_mask(const std::string& status, std::string_view name) {
  constexpr int kHex = 16;
  uint64_t mask = 0;
  return parse_number(line_in_status(status, name), mask, kHex) ? mask : 0;
}

}  // namespace

bool is_being_killed(pid_t thread) noexcept {
  if (thread <= 0) return false;  // of another pid namespace: it waits for the deadline
  try {
    const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(thread) + "/status", kStatusLimit);
    if (!status) return false;
    // The kernel turns every signal that will end the process into a SIGKILL for each of its threads.
    constexpr uint64_t kKilled = uint64_t{1} << (SIGKILL - 1);
    return ((signal_mask(*status, "SigPnd") | signal_mask(*status, "ShdPnd")) & kKilled) != 0;
  } catch (const std::exception&) {
    return false;
  }
}

PendingRequest::PendingRequest(KernelReply reply, Operation operation) noexcept
    : channel_(channel_of(reply.request()).shared_from_this()),
      operation_(operation),
      request_(reply.release()),
      detached_(takeover::serving_slot() == nullptr ? nullptr : channel_->slots.detach(*takeover::serving_slot())) {
  fuse_req_interrupt_func(request_, &PendingRequest::on_interrupt, this);
  // libfuse calls on_interrupt from within the line above when the interrupt came first, and goes on to use the
  // request afterwards: answering there would free it too early.
  armed_ = true;
}

PendingRequest::~PendingRequest() {
  if (!claim()) return;
  channel_->log_exception(operation_, "the file system dropped a request");
  take_reply().errno_value(EIO);
  finish();
}

void PendingRequest::finish() noexcept {
  if (detached_ != nullptr) detached_->free();
  answered_.notify_with([](bool& answered) { answered = true; });
}

void PendingRequest::wait() noexcept {
  // The file system answers every request within its own deadline, which may be longer than --hang-timeout.
  constexpr std::chrono::seconds kStep{1};
  const auto is_answered = [](bool answered) { return answered; };
  while (!answered_.wait_until(std::chrono::steady_clock::now() + kStep, is_answered, is_answered)) {
    takeover::note_progress();
  }
}

void PendingRequest::answer(const vfs::LookupAnswer& answer) noexcept {
  if (claim()) {
    take_reply().answer(answer);
    finish();
  } else if (answer.found) {
    channel_->operations().names.forget(answer.found->node, 1);  // nobody took the reference
  }
}

/// Requires: claimed. Waits for an on_interrupt that is running: it has lost, but still looks at this object.
KernelReply PendingRequest::take_reply() noexcept {
  fuse_req_interrupt_func(request_, nullptr, nullptr);
  return {*channel_, request_, operation_};
}

void PendingRequest::opened() noexcept {
  if (!claim()) return;
  take_reply().opened_directory(false);  // it may have been empty a moment ago
  finish();
}

void PendingRequest::on_interrupt(fuse_req* request, void* data) noexcept {
  auto* pending = static_cast<PendingRequest*>(data);
  const bool only_waits = pending->operation_ == Operation::kOpendir;
  pending->interrupted_ = true;  // before the look at armed_: was_interrupted() looks behind it
  if (!pending->armed_ || (!only_waits && !is_being_killed(fuse_req_ctx(request)->pid))) return;
  const std::shared_ptr<Channel> channel = pending->channel_;
  takeover::Slot* detached = pending->detached_;
  const Operation operation = pending->operation_;
  // Once claimed, the object may go at any time: only the request, which libfuse keeps during this call, is touched.
  if (!pending->claim()) return;
  KernelReply reply(*channel, request, operation);
  if (only_waits) {
    reply.opened_directory(false);
  } else {
    reply.errno_value(EINTR);
  }
  if (detached != nullptr) return detached->free();
  // The thread of a lookup waits, and keeps the object.
  if (!only_waits) pending->answered_.notify_with([](bool& answered) { answered = true; });
}

}  // namespace inductorfs::fuse
