// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "inductorfs/base/clock.h"

namespace inductorfs::cli {

/// The most bytes of a request's line and headers; Prometheus sends some 300.
inline constexpr size_t kHttpHeadLimit = 16'384;
/// How long a client may take to send its request, and to take the answer.
inline constexpr Milliseconds kHttpRequestPatience{5'000};
inline constexpr Milliseconds kHttpAnswerPatience{10'000};

/// Reads the line and headers of a request, as one string without the empty line that ends them. Returns the status of
/// the HTTP answer; 200 means that the figures are to be sent.
[[nodiscard]] int status_of_scrape(std::string_view head);
/// Returns the whole answer. `figures` is the body of an answer with status 200.
[[nodiscard]] std::string scrape_answer(int status, std::string_view figures);

/// Reads one request from `in` and answers it on `out`; the two may be one socket. `figures` makes the text, and is
/// called for a good request only. Blocks for the two patiences at most, and for `figures`. Whatever the client does
/// wrong is answered or ends this call, and is no error of ours.
void serve_scrape(int in, int out, const std::function<std::string()>& figures);

}  // namespace inductorfs::cli
