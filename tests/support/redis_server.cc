// SPDX-License-Identifier: Apache-2.0
#include "support/redis_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>

#include "inductorfs/base/fd.h"
#include "support/patience.h"

namespace inductorfs::testing {
namespace {

constexpr std::chrono::seconds kStartPatience{20 * kSlowness};
constexpr int kProbeMilliseconds = 10;

void shell(const std::string& command) {
  if (std::system((command + " >/dev/null 2>&1").c_str()) != 0) throw std::runtime_error("failed: " + command);
}

// Any answer will do: with a password it is NOAUTH.
bool answers(const std::string& socket_path) {
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
  constexpr std::string_view kPing = "PING\r\n";
  if (::send(socket.get(), kPing.data(), kPing.size(), MSG_NOSIGNAL) < 0) return false;
  pollfd entry{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 1000) > 0 && ::recv(socket.get(), &byte, 1, 0) == 1;
}

}  // namespace

uint16_t free_port() {
  // Below the ports that the kernel gives to connections by itself (ip_local_port_range): one of those may be in use a
  // moment later.
  constexpr uint32_t kFirst = 10'000;
  constexpr uint32_t kCount = 22'000;
  static std::atomic<uint32_t> next = std::random_device()();
  for (uint32_t tries = 0; tries < kCount; ++tries) {
    const auto port = static_cast<uint16_t>(kFirst + next++ % kCount);
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return port;
  }
  throw std::runtime_error("no free port");
}

Certificates make_certificates(const std::string& directory, const std::string& label,
                               const std::string& subject_alternative_name) {
  const auto at = [&](const std::string& name) { return directory + "/" + name; };
  const std::string new_key = " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes ";
  if (!std::filesystem::exists(at("ca.pem"))) {
    shell("openssl req -x509 -days 2 -subj /CN=test-ca" + new_key + "-keyout " + at("ca.key") + " -out " +
          at("ca.pem"));
  }
  const std::string request = at(label + ".csr");
  const Certificates made{at("ca.pem"), at(label + ".pem"), at(label + ".key")};
  shell("openssl req -new -subj /CN=" + label + new_key + "-keyout " + made.key_file + " -out " + request);
  shell("echo subjectAltName=" + subject_alternative_name + " > " + at(label + ".ext") +
        " && openssl x509 -req -days 2 -in " + request + " -CA " + made.ca_file + " -CAkey " + at("ca.key") +
        " -CAcreateserial -extfile " + at(label + ".ext") + " -out " + made.certificate_file);
  return made;
}

bool RedisServer::available() { return std::system("command -v redis-server >/dev/null 2>&1") == 0; }

RedisServer::RedisServer(Options options) : options_(std::move(options)) {
  if (options_.tls) {
    tls_port_ = free_port();
    const std::string authority = options_.tls_authority.empty() ? directory_.path() : options_.tls_authority;
    certificates_ = make_certificates(authority, "server-" + std::to_string(tls_port_), options_.tls_name);
  }
  start();
}

RedisServer::~RedisServer() { kill(); }

std::string RedisServer::url() const {
  return "unix://" + (options_.password.empty() ? "" : ":" + options_.password + "@") + socket_path();
}

void RedisServer::start() {
  std::vector<std::string> words = {
      "redis-server", "--port",          "0",         "--unixsocket",          socket_path(), "--save", "",
      "--dir",        directory_.path(), "--logfile", directory_ / "redis.log"};
  const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
  if (!options_.password.empty()) add({"--requirepass", options_.password});
  if (options_.tls) {
    add({"--bind", "127.0.0.1", "--tls-port", std::to_string(tls_port_), "--tls-ca-cert-file", certificates_.ca_file});
    add({"--tls-cert-file", certificates_.certificate_file, "--tls-key-file", certificates_.key_file});
    add({"--tls-auth-clients", options_.tls_client_certificates ? "yes" : "no"});
  }
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, 1);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  wait_until_ready();
}

void RedisServer::wait_until_ready() {
  const auto deadline = std::chrono::steady_clock::now() + kStartPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (answers(socket_path())) return;
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      throw std::runtime_error("redis-server ended at once; is it installed?");
    }
    (void)::poll(nullptr, 0, kProbeMilliseconds);  // a pause between two probes
  }
  throw std::runtime_error("redis-server does not answer");
}

void RedisServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::freeze() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);
}

void RedisServer::thaw() { ::kill(pid_, SIGCONT); }

}  // namespace inductorfs::testing
