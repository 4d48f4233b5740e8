// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <map>
#include <thread>
#include <vector>

#include "fuzz_target.h"
#include "inductorfs/base/fd.h"
#include "inductorfs/base/guarded.h"
#include "inductorfs/remote/remote.h"
#include "remote/formats/piece.h"
#include "support/temporary_directory.h"

namespace codec = inductorfs::codec;
namespace fuzz = inductorfs::fuzz;
namespace remote = inductorfs::remote;
using inductorfs::Fd;
using inductorfs::Milliseconds;
using inductorfs::Result;

namespace {

constexpr std::string_view kSeparator = "\n~~\n";
constexpr int kRequestWait = 2;  ///< milliseconds
const std::string kScope(64, 'a');

/// A server that says one part of the input for each request, and the rest when none comes: a reply that was cut. It
/// ends the connection when it has nothing left to say. Safe for concurrent use.
class Server {
 public:
  Server() : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    INDUCTORFS_CHECK(path_.size() < sizeof address.sun_path);
    path_.copy(address.sun_path, path_.size());
    INDUCTORFS_CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    INDUCTORFS_CHECK(::listen(listener_.get(), 16) == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    (void)::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept()
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::string url() const { return "unix://" + path_; }
  void say(std::vector<std::string> parts) {
    parts_.with([&](Parts& now) { now = {std::move(parts), 0}; });
  }

 private:
  struct Parts {
    std::vector<std::string> texts;
    size_t next = 0;
  };
  bool next(std::string& text) {
    return parts_.with([&](Parts& now) {
      if (now.next == now.texts.size()) return false;
      text = now.texts[now.next++];
      return true;
    });
  }
  void serve() {
    while (true) {
      const Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client) return;
      std::string text;
      char request[4096];
      pollfd waiting{client.get(), POLLIN, 0};
      while (true) {
        // The first request may take its time: a connection is opened before there is one.
        if (::poll(&waiting, 1, kRequestWait) > 0 && ::recv(client.get(), request, sizeof request, 0) <= 0) break;
        if (!next(text) || ::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) break;
      }
    }
  }

  const inductorfs::testing::TemporaryDirectory directory_;
  const std::string path_ = directory_ / "s";
  const Fd listener_;
  inductorfs::Guarded<Parts> parts_;
  std::thread thread_;
};

/// Each digest is answered once, and nothing comes after that.
class Sink final : public remote::BlobSink {
 public:
  Result<void> piece(const codec::Digest& digest, std::string_view bytes) override {
    INDUCTORFS_CHECK(!done_.contains(digest) && !bytes.empty());
    return {};
  }
  void done(const codec::Digest& digest, Result<void> /*outcome*/) override {
    INDUCTORFS_CHECK(done_.emplace(digest, true).second);
  }
  [[nodiscard]] size_t count() const { return done_.size(); }

 private:
  std::map<codec::Digest, bool> done_;
};

/// A frame of one byte each.
class Source final : public remote::BlobSource {
 public:
  Result<void> read(const codec::Digest& /*digest*/, size_t /*piece*/,
                    const std::function<Result<void>(std::string_view)>& sink) override {
    return sink("x");
  }
};

void read_changes(const remote::Remote& server, const remote::Position& from, inductorfs::Deadline deadline) {
  const auto delta = server.index->read_changes(kScope, from, deadline);
  if (!delta) return;
  for (const codec::Entry& entry : delta->set) INDUCTORFS_CHECK(codec::is_clean_path(entry.path));
  for (const std::string& path : delta->removed) INDUCTORFS_CHECK(codec::is_clean_path(path));
}

void publish(const remote::Remote& server, inductorfs::Deadline deadline) {
  remote::PublishGroup group;
  group.scope = kScope;
  group.entries.emplace_back();
  group.entries.back().path = "ab/x";
  group.contest = remote::PublishGroup::Contest{"ab", 0};
  Source source;
  (void)server.index->publish(group, source, deadline);  // any outcome
}

void act(const remote::Remote& server, uint8_t action) {
  const auto deadline = inductorfs::Deadline::after(Milliseconds(2000));
  switch (action % 8) {
    case 0:
      return read_changes(server, {}, deadline);
    case 1:
      return read_changes(server, {1, "n1"}, deadline);
    case 2: {
      const std::vector<codec::Digest> digests = {codec::digest_of("one"), codec::digest_of("two")};
      Sink sink;
      server.blobs->fetch(digests, sink, deadline);
      INDUCTORFS_CHECK(sink.count() == digests.size());
      return;
    }
    case 3: {
      const auto scopes = server.index->list_scopes(16, deadline);
      INDUCTORFS_CHECK(!scopes || scopes->size() <= 16);
      return;
    }
    case 4:
      (void)server.operators->probe(deadline);  // any outcome
      return;
    case 5:
      (void)server.index->report_lost(kScope, "ab/x", codec::digest_of("one"), deadline);  // any outcome
      return;
    case 6: {
      const std::vector<codec::Digest> digests = {codec::digest_of("one"), codec::digest_of("two")};
      const auto report = server.blobs->gather(digests, deadline);
      INDUCTORFS_CHECK(!report || report->blobs <= digests.size());
      return;
    }
    default:
      return publish(server, deadline);
  }
}

}  // namespace

/// Every reply of a server, to every kind of call. The first byte picks the call.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Server server;
  std::string_view input = fuzz::view(data, size);
  if (input.empty()) return 0;
  const uint8_t action = fuzz::take_byte(input);
  if (const auto head = remote::PieceHead::parse(input)) {
    INDUCTORFS_CHECK(head->encode() == input.substr(0, remote::kPieceHeadSize));
    INDUCTORFS_CHECK(head->size_of(head->pieces - 1) > 0);
  }
  std::vector<std::string> parts;
  while (!input.empty()) {
    const size_t end = std::min(input.find(kSeparator), input.size());
    parts.emplace_back(input.substr(0, end));
    input.remove_prefix(std::min(end + kSeparator.size(), input.size()));
  }
  server.say(std::move(parts));
  inductorfs::Counters counters;
  remote::RemoteOptions options;
  options.url = server.url();
  options.client_name.clear();
  options.index_limit = 1000;
  auto connected = remote::open_redis(options, counters);
  INDUCTORFS_CHECK(connected.has_value());
  act(*connected, action);
  return 0;
}
