// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

/// Threads that look at files and processes of other users. Nobody waits for them, and the kernel may never let one go,
/// not even killed: a file system may take a request and never answer it. Such a process cannot be reaped, but nothing
/// of it may be missed by the one that replaces it.
namespace inductorfs {

/// Runs `work` on a thread of its own that has but the three standard descriptors: what the kernel keeps with it is no
/// lock, socket or file of this process (best effort: Linux 5.9). Waits for its end, for ever if need be. `work` must
/// neither use nor close a descriptor that others opened, nor leave one to them, nor start a thread. False when the
/// system has no thread for it.
[[nodiscard]] bool run_loose(const char* name, const std::function<void()>& work);

/// A crash while there are such threads ends this process with 128 and the signal's number and without a core: to write
/// one the kernel waits for all threads, with all that the process has open.
void crash_without_loose_threads() noexcept;

}  // namespace inductorfs
