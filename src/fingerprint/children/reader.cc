// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/fingerprint/reader.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "fingerprint/common/child.h"

namespace inductorfs::fingerprint {
namespace {

constexpr const char* kRequest = "INDUCTORFS_READER_REQUEST";
constexpr size_t kErrorLimit = 500;

}  // namespace

Result<std::string> ask_reader(const ReaderOptions& options, const std::string& verb, const std::string& request,
                               int descriptor) {
  ChildOptions child;
  child.environment = {std::string(kRequest) + "=" + request};
  child.cancelled = options.cancelled;
  child.descriptor = descriptor;
  INDUCTORFS_TRY_ASSIGN(auto answer, run_child({options.program, verb}, options.deadline, child));
  if (answer.exit_code == 0) return std::move(answer.out);
  return fail(ErrorCode::kUnavailable, "the reader ended with code " + std::to_string(answer.exit_code) + ": " +
                                           answer.err.substr(0, kErrorLimit));
}

Result<std::string> reader_request() {
  const char* const text = std::getenv(kRequest);
  if (text == nullptr) return fail(ErrorCode::kInvalid, "there is no request; only inductorfs itself starts this");
  std::string request = text;
  (void)unsetenv(kRequest);
  return request;
}

int end_reader(const char* verb, const Result<std::string>& answer) {
  if (!answer) {
    (void)std::fprintf(stderr, "inductorfs: %s: %s\n", verb, answer.error().what().c_str());
    return 2;
  }
  const bool written =
      std::fwrite(answer->data(), 1, answer->size(), stdout) == answer->size() && std::fflush(stdout) == 0;
  return written ? 0 : 1;
}

}  // namespace inductorfs::fingerprint
