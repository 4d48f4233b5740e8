// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "control.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/thread.h"
#include "runtime_files.h"
#include "socket.h"

namespace inductorfs::daemon {
namespace {

constexpr int kBacklog = 64;
/// Requests that are answered at once; kWaiting more may wait for a thread. More than that are turned away.
constexpr size_t kThreads = 8;
constexpr size_t kWaiting = 32;
constexpr Milliseconds kAcceptTick{200};

Result<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return fail_errno("SO_PEERCRED");
  Peer peer;
  peer.uid = credentials.uid;
  peer.pid = credentials.pid;
  peer.gone = [fd] {
    // Nothing may follow a request, so anything readable is the end.
    pollfd item{fd, POLLIN | POLLRDHUP, 0};
    return ::poll(&item, 1, 0) > 0;
  };
  return peer;
}

class SocketServer final : public ControlServer {
 public:
  SocketServer(std::string path, Fd listener, RequestHandler handler)
      : path_(std::move(path)),
        listener_(std::move(listener)),
        handler_(std::move(handler)),
        workers_("control", kThreads, kWaiting),
        acceptor_(start_thread("control-accept", [this](const std::stop_token& stop) { accept_until(stop); })) {}

  ~SocketServer() override { stop(); }

  void stop() override {
    if (stopped_.exchange(true)) return;
    acceptor_.request_stop();
    acceptor_.join();
    workers_.stop();
    (void)::unlink(path_.c_str());  // the next daemon replaces it anyway
  }

 private:
  void accept_until(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (!wait_for(listener_.get(), POLLIN, Deadline::after(kAcceptTick))) continue;
      auto connection =
          std::make_shared<Fd>(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!*connection) {
        // Out of descriptors: the connection stays readable, and this must not spin until some are free.
        if (errno != EAGAIN && errno != EINTR) (void)wait_for(-1, 0, Deadline::after(kAcceptTick));
        continue;
      }
      // Turned away by closing when too many wait: the client says that nobody answers.
      (void)workers_.submit([this, connection] { serve(*connection); });
    }
  }

  void serve(Fd& connection) {
    const Result<std::string> request = receive_line(connection.get(), kRequestLimit, Deadline::after(kPeerPatience));
    if (!request) return;  // it went, or said nothing of use: nobody is there to be told
    const Result<Peer> peer = peer_of(connection.get());
    if (!peer) return;
    const Answer answer = handler_(*request, *peer);
    const Result<void> sent = send_line(connection.get(), answer.line, Deadline::after(kPeerPatience));
    if (!sent) log::debug("control_answer_lost", {{"why", sent.error().what()}});
    // Closed by the kernel when this process ends, which is what the client waits for.
    if (answer.hold_until_exit) (void)connection.release();
  }

  std::string path_;
  Fd listener_;
  RequestHandler handler_;
  WorkerPool workers_;
  std::jthread acceptor_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::open(const std::string& path, RequestHandler handler) {
  INDUCTORFS_TRY(prepare_runtime_directory(path.substr(0, path.rfind('/'))));
  if (is_listening(path)) {
    return fail(ErrorCode::kBusy, "control socket: " + path + ": another daemon serves this mountpoint: unmount it");
  }
  Result<Fd> listener = listen_at(path, kBacklog);
  if (!listener) return fail(listener.error());
  return std::make_unique<SocketServer>(path, std::move(*listener), std::move(handler));
}

}  // namespace inductorfs::daemon
