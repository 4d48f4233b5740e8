// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

/// Threads that look at files and processes of other users. Nobody waits for them, and the kernel may never let one go,
/// not even when it is killed, because a file system may take a request and never answer it. A process with such a
/// thread cannot be reaped; the process that replaces it must not need anything that the old one holds.
namespace inductorfs {

/// Runs `work` on a thread of its own that has only the three standard descriptors, so that a thread that stays in the
/// kernel keeps no lock, socket or file of this process open (best effort: Linux 5.9). Waits for the thread's end,
/// without a limit. `work` must neither use nor close a descriptor that others opened, nor leave one to them, nor start
/// a thread. Returns false when the system has no thread for it.
[[nodiscard]] bool run_loose(const char* name, const std::function<void()>& work);

/// Installs signal handlers for crashes. A crash while there are loose threads then ends this process with 128 plus the
/// signal's number and without a core: to write a core the kernel would wait for all threads, with all that the process
/// has open.
void crash_without_loose_threads() noexcept;

}  // namespace inductorfs
