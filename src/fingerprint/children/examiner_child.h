// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "fingerprint/processes/look_messages.h"
#include "inductorfs/fingerprint/examiner.h"

namespace inductorfs::fingerprint {

/// A question, and what the examiner itself has found about the process.
struct Errand {
  const Question& question;
  int further = -1;  ///< what the worker has sent along
  uid_t owner = 0;
  /// Of kPackage: with whose rights its files are read, and by which directory where that is not this process's root.
  const FileUser& reader;
  const std::string& root;
  std::shared_ptr<const Held> held;  ///< its files; nullptr: none are held
};

/// What a child of the examiner does: it answers one question and ends. It forgets the secret before it looks at what
/// users chose. Confined to one thread.
class ExaminerChild {
 public:
  /// Both must outlive this object.
  ExaminerChild(const ExaminerOptions& options, const ProcReader& reader, SealSecret secret)
      : options_(options), reader_(reader), secret_(std::move(secret)) {}

  /// Leaves this process the rights, the memory and the system calls that it takes to answer the question, and has the
  /// OOM killer take it before any program. Ends it where that is refused.
  void limit_to(const Question& question) const;
  /// Returns a line without its end. `memory` goes along with it.
  [[nodiscard]] std::string answer(const Errand& errand, std::shared_ptr<const Fd>& memory);

 private:
  [[nodiscard]] std::string run(const Errand& errand) const;
  [[nodiscard]] std::string look(const Errand& errand, const std::string& key, std::shared_ptr<const Fd>& memory) const;
  [[nodiscard]] std::string read(const Errand& errand, const std::string& key) const;

  const ExaminerOptions& options_;
  const ProcReader& reader_;
  const SealSecret secret_;
};

}  // namespace inductorfs::fingerprint
