// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "inductorfs/base/guarded.h"
#include "inductorfs/base/handle.h"
#include "inductorfs/base/log.h"
#include "inductorfs/base/regular_file.h"
#include "inductorfs/redis/certificates.h"
#include "transport.h"

namespace inductorfs::redis {
namespace {

using Context = Handle<SSL_CTX, SSL_CTX_free>;
using Session = Handle<SSL, SSL_free>;

/// The certificates of all authorities of a system have some 200 KB.
constexpr uint64_t kPemLimit = uint64_t{16} << 20;

std::string last_reason() {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "no reason given" : reason;
}

// A BIO over the socket: OpenSSL's own uses write(2), which raises SIGPIPE when the server has gone.
int bio_write(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<int*>(BIO_get_data(bio));
  const auto sent = send_now(fd, {bytes, static_cast<size_t>(size)});
  if (!sent) return -1;
  if (*sent > 0) return static_cast<int>(*sent);
  BIO_set_retry_write(bio);
  return -1;
}

int bio_read(BIO* bio, char* out, int size) {
  BIO_clear_retry_flags(bio);
  const int fd = *static_cast<int*>(BIO_get_data(bio));
  const auto got = receive_now(fd, out, static_cast<size_t>(size));
  if (!got) return 0;
  if (*got > 0) return static_cast<int>(*got);
  BIO_set_retry_read(bio);
  return -1;
}

long bio_control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* socket_bio_method() {
  static const Handle<BIO_METHOD, BIO_meth_free> method = [] {
    Handle<BIO_METHOD, BIO_meth_free> made(
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "inductorfs socket"));
    INDUCTORFS_CHECK(made != nullptr);
    BIO_meth_set_write(made.get(), bio_write);
    BIO_meth_set_read(made.get(), bio_read);
    BIO_meth_set_ctrl(made.get(), bio_control);
    BIO_meth_set_create(made.get(), [](BIO* bio) {
      BIO_set_init(bio, 1);
      return 1;
    });
    return made;
  }();
  return method.get();
}

int capped(size_t size) { return static_cast<int>(std::min<size_t>(size, std::numeric_limits<int>::max())); }

class TlsTransport final : public Transport {
 public:
  TlsTransport(Fd socket, Session session)
      : socket_(std::move(socket)), fd_(socket_.get()), session_(std::move(session)) {
    BIO* bio = BIO_new(socket_bio_method());
    INDUCTORFS_CHECK(bio != nullptr);
    BIO_set_data(bio, &fd_);
    SSL_set_bio(session_.get(), bio, bio);
  }

  Result<size_t> read(char* out, size_t size) override {
    ERR_clear_error();
    return outcome(SSL_read(session_.get(), out, capped(size)));
  }
  Result<size_t> write(std::string_view bytes) override {
    ERR_clear_error();
    return outcome(SSL_write(session_.get(), bytes.data(), capped(bytes.size())));
  }
  short read_events() const override { return SSL_want_write(session_.get()) ? POLLIN | POLLOUT : POLLIN; }
  int fd() const override { return fd_; }
  // Session tickets of TLS 1.3 may lie unread: bytes alone are no fault here.
  bool idle_ok() const override { return idle_state(fd_) != Idle::kClosed; }

  Result<void> shake_hands(const Wait& wait) {
    while (true) {
      ERR_clear_error();
      const int done = SSL_connect(session_.get());
      if (done == 1) return {};
      const int why = SSL_get_error(session_.get(), done);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return refused();
      INDUCTORFS_TRY_ASSIGN(const auto ready, wait_ready(fd_, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, wait));
      if (!ready)
        return fail(ErrorCode::kTimedOut,
                    "TLS: the server does not answer in time; if its port speaks without TLS, use redis://");
      if (wait.budget != nullptr && why == SSL_ERROR_WANT_READ) wait.budget->progress();
    }
  }

 private:
  tl::unexpected<Error> refused() const {
    const long verdict = SSL_get_verify_result(session_.get());
    if (verdict != X509_V_OK) {
      return fail(ErrorCode::kNotPermitted, std::string("TLS: the server's certificate is not accepted: ") +
                                                X509_verify_cert_error_string(verdict));
    }
    return fail(ErrorCode::kUnavailable, "TLS: no session with the server: " + last_reason());
  }
  Result<size_t> outcome(int moved) const {
    if (moved > 0) return static_cast<size_t>(moved);
    switch (SSL_get_error(session_.get(), moved)) {
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return size_t{0};
      case SSL_ERROR_ZERO_RETURN:
        return fail(ErrorCode::kUnavailable, "the server has closed the connection");
      case SSL_ERROR_SYSCALL:
        return fail(ErrorCode::kUnavailable, "the connection is lost");
      default:
        // A server that wants a client certificate says so only now: in TLS 1.3 its verdict follows the handshake.
        return fail(ErrorCode::kUnavailable, "TLS: " + last_reason());
    }
  }

  Fd socket_;
  int fd_;
  Session session_;
};

tl::unexpected<Error> unusable(const std::string& what, const std::string& file, const std::string& why) {
  return fail(ErrorCode::kInvalid, "TLS: cannot use the " + what + " " + file + ": " + why);
}

Result<Fd> open_file(const FileSource& files, const std::string& file) {
  if (!files) return open_regular(file, kPemLimit);
  INDUCTORFS_TRY_ASSIGN(const auto text, files(file));
  Fd memory(::memfd_create("inductorfs-pem", MFD_CLOEXEC));
  if (!memory) return fail_errno("memfd_create");
  INDUCTORFS_TRY(pwrite_full(memory.get(), text, 0));
  return memory;
}

using Load = std::function<int(const char*)>;

/// Has OpenSSL read a file that an option names. OpenSSL opens what we have opened: by itself it would wait for the
/// other end of a FIFO, and read a device without end.
Result<void> load_file(const FileSource& files, const std::string& what, const std::string& file, const Load& load) {
  const Result<Fd> opened = open_file(files, file);
  if (!opened && opened.error().code() == ErrorCode::kNotFound) return unusable(what, file, "it does not exist");
  if (!opened && is_passing(opened.error())) {
    return fail(opened.error().code(), "TLS: the " + what + " " + file + ": " + opened.error().what());
  }
  if (!opened) return unusable(what, file, opened.error().what());
  const std::string place = "/proc/self/fd/" + std::to_string(opened->get());
  return load(place.c_str()) == 1 ? Result<void>() : unusable(what, file, last_reason());
}

Result<void> load_certificates(SSL_CTX* context, const Endpoint& endpoint) {
  if (!endpoint.ca_file.empty()) {
    INDUCTORFS_TRY(load_file(endpoint.files, "CA file", endpoint.ca_file, [context](const char* place) {
      return SSL_CTX_load_verify_locations(context, place, nullptr);
    }));
  } else if (SSL_CTX_set_default_verify_paths(context) != 1) {
    return unusable("system's certificates", "", last_reason());
  }
  if (endpoint.certificate_file.empty()) return {};
  INDUCTORFS_TRY(load_file(endpoint.files, "certificate", endpoint.certificate_file, [context](const char* place) {
    return SSL_CTX_use_certificate_chain_file(context, place);
  }));
  const std::string& key = endpoint.key_file.empty() ? endpoint.certificate_file : endpoint.key_file;
  return load_file(endpoint.files, "key", key, [context](const char* place) {
    return SSL_CTX_use_PrivateKey_file(context, place, SSL_FILETYPE_PEM);
  });
}

Result<Context> make_context(const Endpoint& endpoint) {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return fail(ErrorCode::kInternal, "TLS: " + last_reason());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return fail(ErrorCode::kInternal, "TLS: " + last_reason());
  }
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // A key with a pass phrase would make OpenSSL ask on the terminal: refuse instead.
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  INDUCTORFS_TRY(load_certificates(context.get(), endpoint));
  return context;
}

std::string state_on_disk(const std::string& file) {
  struct stat status {};
  if (file.empty() || ::stat(file.c_str(), &status) != 0) status = {};
  std::string state = file + '\0';
  for (const auto number :
       {static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
        static_cast<int64_t>(status.st_ctim.tv_sec), static_cast<int64_t>(status.st_ctim.tv_nsec)}) {
    state += std::to_string(number) + ' ';
  }
  return state;
}

std::string state_of_file(const Endpoint& endpoint, const std::string& file) {
  if (!endpoint.files || file.empty()) return state_on_disk(file);
  const auto text = endpoint.files(file);
  return file + '\0' + (text ? std::to_string(std::hash<std::string>()(*text)) : "none") + ' ';
}

/// In which state the authorities are: certificates are renewed under a running daemon.
std::string state_of_trust(const Endpoint& endpoint) {
  return endpoint.ca_file.empty() ? state_on_disk(X509_get_default_cert_file())
                                  : state_of_file(endpoint, endpoint.ca_file);
}

std::string state_of_own(const Endpoint& endpoint) {
  return state_of_file(endpoint, endpoint.certificate_file) + state_of_file(endpoint, endpoint.key_file);
}

/// What the last dial used: all connections of a process go to one server as a rule.
struct Kept {
  std::string names;  ///< of the own certificate and its key
  std::string trust;
  std::string own;
  Context context;
};
std::atomic<uint64_t> loads{0};

// Reading a system's certificates takes tens of milliseconds, of the little time that a lookup has for a new
// connection.
Result<Context> context_for(const Endpoint& endpoint) {
  static Guarded<Kept> kept;
  const std::string names = endpoint.certificate_file + '\0' + endpoint.key_file;
  const std::string trust = state_of_trust(endpoint);
  const std::string own = state_of_own(endpoint);
  const auto last_if = [&](const auto& fits) {
    return kept.with([&](const Kept& last) {
      if (last.context == nullptr || last.trust != trust || !fits(last)) return Context();
      INDUCTORFS_CHECK(SSL_CTX_up_ref(last.context.get()) == 1);
      return Context(last.context.get());
    });
  };
  if (Context known = last_if([&](const Kept& last) { return last.own == own; }); known != nullptr) return known;
  ++loads;
  auto made = make_context(endpoint);
  if (made) {
    kept.with([&](Kept& last) {
      INDUCTORFS_CHECK(SSL_CTX_up_ref(made->get()) == 1);
      last = {names, trust, own, Context(made->get())};
    });
    return made;
  }
  // A certificate and a key that are exchanged one after the other do not fit for a moment: the next dial looks again.
  // Authorities are never those of before.
  Context before = last_if([&](const Kept& last) { return last.names == names; });
  if (before == nullptr) return made;
  log::write_limited(log::Level::kWarning, "redis.certificates_not_used", {{"why", made.error().what()}});
  return before;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return ::inet_pton(AF_INET, host.c_str(), ignored.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), ignored.data()) == 1;
}

// No release of hiredis checks the name: without this any certificate of the same CA is accepted.
bool expect_peer(SSL* session, const std::string& host) {
  if (is_address(host)) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), host.c_str()) == 1;
  SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // SSL_set_tlsext_host_name is a macro with a C cast; this is what it stands for.
  return SSL_set1_host(session, host.c_str()) == 1 &&
         SSL_ctrl(session, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, const_cast<char*>(host.c_str())) ==
             1;
}

}  // namespace

uint64_t certificate_loads() { return loads; }

Result<void> check_certificates(const Endpoint& endpoint) {
  const auto useless = [](const std::string& what, const std::string& file, const std::string& why) {
    return fail(ErrorCode::kInvalid, "TLS: the " + what + " " + file + " is of no use: " + why);
  };
  const std::string no_tls = "the URL is not one with TLS: use rediss://, or leave the file out";
  for (const auto& [what, file] : {std::pair{"CA file", &endpoint.ca_file},
                                   {"certificate", &endpoint.certificate_file},
                                   {"key", &endpoint.key_file}}) {
    if (!endpoint.tls && !file->empty()) return useless(what, *file, no_tls);
  }
  if (!endpoint.key_file.empty() && endpoint.certificate_file.empty()) {
    return useless("key", endpoint.key_file, "no certificate is named with it: give its --cert-file");
  }
  if (!endpoint.tls) return {};
  const Result<Context> context = context_for(endpoint);
  return context ? Result<void>() : fail(context.error());
}

Result<std::unique_ptr<Transport>> make_tls_transport(Fd socket, const Endpoint& endpoint, const Wait& wait) {
  auto context = context_for(endpoint);
  if (!context) return fail(endpoint.files ? of_given_file(context.error()) : std::move(context).error());
  Session session(SSL_new(context->get()));
  if (session == nullptr || !expect_peer(session.get(), endpoint.host)) {
    return fail(ErrorCode::kInternal, "TLS: " + last_reason());
  }
  auto transport = std::make_unique<TlsTransport>(std::move(socket), std::move(session));
  INDUCTORFS_TRY(transport->shake_hands(wait));
  return transport;
}

}  // namespace inductorfs::redis
