// SPDX-License-Identifier: Apache-2.0
// A process that the tests of Writers look at. Reads commands from its input, one a line, and answers each with a line:
//   map FILE          maps a file and keeps it
//   set NAME VALUE    setenv; unset NAME; clear
//   thread            starts a thread that waits; answers its id
//   fork              a child without an exec; spawn: one with an exec, that maps nothing; both answer its id and wait
//   share             a child with this process's memory, as of vfork(2), that waits; answers its id
//   go                has it execute a program, as spawn does
//   exec              becomes this program again, with nothing mapped
// Ends with its input; so do its children.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

// Children and threads wait until the other end of this pipe is closed: then this process has ended.
int life = -1;
int life_writer = -1;

[[noreturn]] void wait_for_the_end(int fd) {
  char byte = 0;
  while (read(fd, &byte, 1) > 0) {
  }
  _exit(0);
}

std::string map_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) return "cannot open";
  // As the loader does it: private, and the descriptor is closed.
  const void* const at = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  (void)close(fd);
  return at == MAP_FAILED ? "cannot map" : "ok";
}

std::string start_child(bool program) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    // `ready` closes when the child has come so far, by its exec or by its hand.
    (void)close(ready[0]);
    (void)close(life_writer);
    if (program) (void)execl("/proc/self/exe", "writers_program", "wait", std::to_string(life).c_str(), nullptr);
    (void)close(ready[1]);
    wait_for_the_end(life);
  }
  (void)close(ready[1]);
  char byte = 0;
  (void)!read(ready[0], &byte, 1);
  (void)close(ready[0]);
  return std::to_string(child);
}

/// What a child that shares this process's memory needs: it may call nothing that locks or allocates.
struct Shared {
  int go[2] = {-1, -1};    // a byte has it execute
  int gone[2] = {-1, -1};  // its exec closes the child's end
  char number[16] = {};
};
Shared shared;

int share_memory(void*) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);  // the program that it began with may be gone by then
  char byte = 0;
  if (read(shared.go[0], &byte, 1) == 1) {
    (void)execl("/proc/self/exe", "writers_program", "wait", shared.number, nullptr);
  }
  _exit(0);
}

std::string start_sharing_child() {
  static auto* const stack = new std::vector<char>(size_t{64} << 10);
  if (pipe2(shared.go, O_CLOEXEC) != 0 || pipe2(shared.gone, O_CLOEXEC) != 0) return "no pipe";
  (void)snprintf(shared.number, sizeof shared.number, "%d", life);
  const pid_t child = clone(share_memory, stack->data() + stack->size(), CLONE_VM | SIGCHLD, nullptr);
  (void)close(shared.gone[1]);
  return std::to_string(child);
}

std::string let_it_execute() {
  char byte = 'g';
  (void)!write(shared.go[1], &byte, 1);
  return read(shared.gone[0], &byte, 1) == 0 ? "ok" : "no";
}

std::string start_thread() {
  static auto* const threads = new std::vector<std::thread>;  // they end with the process, never before
  std::promise<pid_t> id;
  threads->emplace_back([&id] {
    id.set_value(static_cast<pid_t>(syscall(SYS_gettid)));
    wait_for_the_end(life);
  });
  return std::to_string(id.get_future().get());
}

std::string answer(const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::string name;
  std::string value;
  words >> command >> name;
  std::getline(words >> std::ws, value);
  if (command == "map") return map_file(name);
  if (command == "set") return setenv(name.c_str(), value.c_str(), 1) == 0 ? "ok" : "no";
  if (command == "unset") return unsetenv(name.c_str()) == 0 ? "ok" : "no";
  if (command == "clear") return clearenv() == 0 ? "ok" : "no";
  if (command == "thread") return start_thread();
  if (command == "fork") return start_child(false);
  if (command == "spawn") return start_child(true);
  if (command == "share") return start_sharing_child();
  if (command == "go") return let_it_execute();
  if (command == "exec") (void)execl("/proc/self/exe", "writers_program", nullptr);
  return "?";
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "wait") == 0) wait_for_the_end(std::atoi(arguments[2]));
  int ends[2];
  if (pipe(ends) != 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) != 0) return 1;
  life = ends[0];
  life_writer = ends[1];
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) std::cout << answer(line) << std::endl;
  return 0;
}
