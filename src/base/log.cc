// SPDX-License-Identifier: Apache-2.0
#include "inductorfs/base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "inductorfs/base/clock.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/base/journal.h"
#include "inductorfs/base/log_lines.h"
#include "inductorfs/base/text.h"

namespace inductorfs::log {
namespace {

constexpr size_t kFileLimit = 16ULL << 20;
constexpr size_t kOlderFiles = 3;
constexpr size_t kValueLimit = 4096;
/// Beyond this many names of limited events, the table starts anew: names are literals, so only a bug gets here.
constexpr size_t kLimitedEvents = 1024;
constexpr std::string_view kHidden = "***";
/// The widest mode of a log: it names paths of every user of the mount.
constexpr mode_t kFileMode = 0640;

using Logger = std::shared_ptr<spdlog::logger>;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

/// The journal's priority of a line. Immutable.
class PriorityFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& line) override {
    const std::string_view prefix = message.level >= spdlog::level::err    ? "<3>"
                                    : message.level == spdlog::level::warn ? "<4>"
                                    : message.level == spdlog::level::info ? "<6>"
                                                                           : "<7>";
    line.append(prefix.data(), prefix.data() + prefix.size());
  }
  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityFlag>();
  }
};

Level from_spdlog(spdlog::level::level_enum level) {
  return level >= spdlog::level::err    ? Level::kError
         : level == spdlog::level::warn ? Level::kWarning
         : level == spdlog::level::info ? Level::kInfo
                                        : Level::kDebug;
}

/// Needs external synchronisation.
class GivingSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit GivingSink(std::function<void(Level, std::string_view)> take) : take_(std::move(take)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    take_(from_spdlog(message.level), {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}
  std::function<void(Level, std::string_view)> take_;
};

/// A file that has no name here. Who writes to a terminal waits for it. Safe for concurrent use.
class DescriptorSink final : public spdlog::sinks::sink {
 public:
  explicit DescriptorSink(Fd file) : file_(std::move(file)) {
    struct stat status {};
    if (::fstat(file_.get(), &status) == 0 && !S_ISREG(status.st_mode)) (void)::fcntl(file_.get(), F_SETFL, O_APPEND);
  }
  void log(const spdlog::details::log_msg& message) override {
    formatter_.with([&](std::unique_ptr<spdlog::formatter>& formatter) {
      spdlog::memory_buf_t line;
      formatter->format(message, line);
      struct stat status {};
      const bool is_full = ::fstat(file_.get(), &status) == 0 && status.st_size + line.size() > kFileLimit;
      if (is_full && S_ISREG(status.st_mode)) (void)::ftruncate(file_.get(), 0);
      (void)::write(file_.get(), line.data(), line.size());  // a full disk: there is nobody else to tell
    });
  }
  void flush() override {}
  void set_pattern(const std::string& pattern) override {
    set_formatter(std::make_unique<spdlog::pattern_formatter>(pattern));
  }
  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    formatter_.with([&](std::unique_ptr<spdlog::formatter>& now) { now = std::move(formatter); });
  }

 private:
  const Fd file_;
  Guarded<std::unique_ptr<spdlog::formatter>> formatter_;
};

/// `to_journal`: the journal stores the time itself.
Logger make_logger(spdlog::sink_ptr sink, Level lowest, bool to_journal) {
  auto logger = std::make_shared<spdlog::logger>("inductorfs", std::move(sink));
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<PriorityFlag>('*').set_pattern(to_journal ? "%*%l %v" : "%Y-%m-%dT%H:%M:%S.%eZ %l %v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(to_spdlog(lowest));
  // One write(2) a line: the lines before a crash are the ones that matter, and the hot path does not log.
  logger->flush_on(spdlog::level::trace);
  return logger;
}

struct LimitedEvent {
  SteadyTime last;
  uint64_t suppressed = 0;
};
using LimitedEvents = std::map<std::string, LimitedEvent, std::less<>>;

struct Destination {
  SharedGuarded<Logger> logger{
      make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), Level::kWarning, stderr_is_journal())};
  Guarded<LimitedEvents> limited;
};

/// Never destroyed: threads may log until the process is gone.
Destination& destination() {
  static auto* const instance = new Destination;
  return *instance;
}

/// Takes from a file's mode what goes beyond that of a log. Best effort: the file may be another user's, or no file.
void narrow(const Fd& file) {
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if ((status.st_mode & 07777 & ~kFileMode) != 0) (void)::fchmod(file.get(), status.st_mode & kFileMode);
}

/// Before spdlog opens a file: it would make the file with the process's umask, which is 0 in a daemon.
void make_file(const std::string& path) {
  narrow(Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, kFileMode)));
}

spdlog::sink_ptr file_sink(const std::string& path) {
  using spdlog::sinks::rotating_file_sink_mt;
  for (size_t i = 1; i <= kOlderFiles; ++i) {
    const std::string older = rotating_file_sink_mt::calc_filename(path, i);
    narrow(Fd(::open(older.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)));
  }
  spdlog::file_event_handlers handlers;
  handlers.before_open = make_file;
  return std::make_shared<rotating_file_sink_mt>(path, kFileLimit, kOlderFiles, false, handlers);
}

bool needs_quotes(std::string_view text) {
  if (text.empty()) return true;
  while (!text.empty()) {
    const size_t length = showable_length(text);
    if (length == 0 || std::string_view(" \"=\\").find(text.front()) != std::string_view::npos) return true;
    text.remove_prefix(length);
  }
  return false;
}

void append_quoted(std::string& line, std::string_view text) {
  line.push_back('"');
  for (size_t length = 1; !text.empty(); text.remove_prefix(length)) {
    const char c = text.front();
    const size_t showable = showable_length(text);
    length = std::max<size_t>(showable, 1);
    if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (c == '\n') {
      line.append("\\n");
    } else if (c == '\r') {
      line.append("\\r");
    } else if (c == '\t') {
      line.append("\\t");
    } else if (showable == 0) {
      line.append(fmt::format("\\u{:04x}", static_cast<unsigned char>(c)));
    } else {
      line.append(text.substr(0, length));
    }
  }
  line.push_back('"');
}

void append_text(std::string& line, std::string_view text) {
  std::string shortened;
  if (text.size() > kValueLimit) {
    shortened.append(text.substr(0, kValueLimit)).append("...");
    text = shortened;
  }
  if (needs_quotes(text)) {
    append_quoted(line, text);
  } else {
    line.append(text);
  }
}

void append_field(std::string& line, const Field& field) {
  line.push_back(' ');
  line.append(field.key);
  line.push_back('=');
  std::visit(
      [&](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          append_text(line, value);
        } else {
          line.append(fmt::format("{}", value));
        }
      },
      field.value);
}

void write_line(Level level, std::string_view event, Fields fields, uint64_t suppressed) {
  const Logger logger = destination().logger.read([](const Logger& current) { return current; });
  if (!logger->should_log(to_spdlog(level))) return;
  std::string line(event);
  for (const Field& field : fields) append_field(line, field);
  if (suppressed > 0) append_field(line, Field("suppressed", suppressed));
  logger->log(to_spdlog(level), spdlog::string_view_t(line.data(), line.size()));
}

/// How many lines were held back since the last that passed; empty when this one is held back too.
std::optional<uint64_t> pass_limited(LimitedEvents& events, std::string_view event, SteadyTime now, int seconds) {
  const auto at = events.find(event);
  if (at == events.end()) {
    if (events.size() >= kLimitedEvents) events.clear();
    events.emplace(std::string(event), LimitedEvent{now, 0});
    return 0;
  }
  LimitedEvent& known = at->second;
  if (now - known.last < std::chrono::seconds(seconds)) {
    ++known.suppressed;
    return std::nullopt;
  }
  known.last = now;
  return std::exchange(known.suppressed, 0);
}

}  // namespace

Result<void> open(const std::string& path, Level lowest) {
  spdlog::sink_ptr sink;
  if (path.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    try {
      sink = file_sink(path);
    } catch (const spdlog::spdlog_ex& failure) {
      return fail(ErrorCode::kNotPermitted,
                  std::string("open log: ") + failure.what() + "; make its directory writable or name another file");
    }
  }
  destination().logger.write(
      [&](Logger& current) { current = make_logger(std::move(sink), lowest, path.empty() && stderr_is_journal()); });
  return {};
}

void open_given(Fd file, Level lowest) {
  auto sink = std::make_shared<DescriptorSink>(std::move(file));
  destination().logger.write([&](Logger& current) { current = make_logger(std::move(sink), lowest, false); });
}

void give_lines_to(std::function<void(Level level, std::string_view line)> take) {
  destination().logger.write([&](Logger& current) {
    current = make_logger(std::make_shared<GivingSink>(std::move(take)), Level::kDebug, false);
  });
}

Result<Level> level_from_string(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warning") return Level::kWarning;
  if (text == "error") return Level::kError;
  return fail(ErrorCode::kInvalid, "log level \"" + std::string(text) + "\" is none of debug, info, warning, error");
}

void write_given(Level level, std::string_view line) { write_line(level, line, {}, 0); }

void write(Level level, std::string_view event, Fields fields) { write_line(level, event, fields, 0); }

void write_limited(Level level, std::string_view event, Fields fields, int seconds) {
  const SteadyTime now = system_clock().now();
  const auto suppressed =
      destination().limited.with([&](LimitedEvents& events) { return pass_limited(events, event, now, seconds); });
  if (suppressed) write_line(level, event, fields, *suppressed);
}

std::string redact_url(std::string_view url) {
  const size_t scheme_end = url.find("://");
  const size_t start = scheme_end == std::string_view::npos ? 0 : scheme_end + 3;
  // The last '@', not the one that a strict parser would take: a password with an unescaped '/' or '@' must not leak.
  const size_t at = url.rfind('@');
  std::string safe;
  if (at == std::string_view::npos || at < start) {
    safe = url;
  } else {
    safe.append(url.substr(0, start)).append(kHidden).append(url.substr(at));
  }
  constexpr std::string_view kPasswordParameter = "password=";
  for (size_t from = safe.find(kPasswordParameter); from != std::string::npos;
       from = safe.find(kPasswordParameter, from)) {
    from += kPasswordParameter.size();
    const size_t end = std::min(safe.find_first_of("&#", from), safe.size());
    safe.replace(from, end - from, kHidden);
  }
  return safe;
}

}  // namespace inductorfs::log
