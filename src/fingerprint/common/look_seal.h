// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace inductorfs::fingerprint {

/// What a child of the examiner says of a process, and the seal by which another child knows that again. The worker
/// keeps it, and hands it in with a question for the files of that process: it can name no files of its own choice.
struct Told {
  std::string text;
  std::string seal;
};

/// What the seals of one mount are made with; its bytes are overwritten where nothing has to be sealed any more
/// (ExaminerOptions::seal_secret).
using SealSecret = std::shared_ptr<std::string>;

/// For one process of one user: who has this key, because he has taken over whoever looks at a process of his, seals
/// nothing for others.
[[nodiscard]] std::string seal_key(const std::string& secret, pid_t pid, uint64_t start, uid_t owner);
/// `what` says which of several things the text is.
[[nodiscard]] std::string seal_of(const std::string& key, std::string_view what, std::string_view text);
inline constexpr std::string_view kSealedProcess = "process";
inline constexpr std::string_view kSealedFiles = "files";

/// Overwrites the secret in this process.
void forget(const SealSecret& secret);

}  // namespace inductorfs::fingerprint
