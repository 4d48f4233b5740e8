// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace inductorfs {

/// Whether standard error is the stream that systemd connected to its journal (systemd.exec(5), JOURNAL_STREAM). The
/// journal stores the time of a line itself, and reads its priority from a prefix "<N>" (sd-daemon(3)). Allocates
/// nothing. Safe for concurrent use.
[[nodiscard]] bool stderr_is_journal() noexcept;

/// The prefix for a line of this level on standard error: "<3>" for errors, "<4>" for warnings, "<6>" and "<7>" for
/// "info" and "debug"; empty when standard error is not the journal.
[[nodiscard]] const char* journal_prefix(const char* level) noexcept;

}  // namespace inductorfs
