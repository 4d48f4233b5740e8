// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <thread>
#include <utility>

#include "facts.h"
#include "inductorfs/base/thread.h"
#include "inductorfs/fingerprint/fingerprint.h"
#include "key_memory.h"

namespace inductorfs::fingerprint {

std::string canonical(const Lines& lines) {
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (const auto& [key, value] : lines) {
    std::string text = key;
    text.append("=").append(value);
    std::replace(text.begin(), text.end(), '\n', ' ');
    texts.push_back(std::move(text));
  }
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  std::string result;
  for (const std::string& text : texts) {
    if (!result.empty()) result += '\n';
    result += text;
  }
  return result;
}

Fact known_fact(std::string value, std::string source) { return {true, std::move(value), std::move(source), {}}; }

Fact unknown_fact(std::string problem, std::string source) {
  return {false, {}, std::move(source), std::move(problem)};
}

Fingerprint probe(const ProbeOptions& options) {
  // The driver takes a second to start, longer than all the rest once the keys are remembered.
  GpuAnswer gpu;
  std::jthread asking = start_thread("gpu-probe", [&gpu, &options](const std::stop_token&) { gpu = ask_gpu(options); });

  Fingerprint result;
  const auto python = learn_python(options);
  KeyMemory memory(options.cache_file);
  result.set(Facet::kPython, python_fact(python));
  result.set(Facet::kTorch, torch_fact(python, memory));
  result.set(Facet::kTriton, triton_fact(python, memory));
  (void)memory.save();  // an unwritable memory costs time at the next start, nothing else
  auto [cpu, isa] = cpu_facts();
  result.set(Facet::kCpu, std::move(cpu));
  result.set(Facet::kCpuIsa, std::move(isa));
  result.set(Facet::kLibc, libc_fact());
  result.set(Facet::kCompiler, compiler_fact(options));

  asking.join();
  result.set(Facet::kGpu, gpu_fact(gpu));
  result.set(Facet::kGpuArch, gpu_arch_fact(gpu));
  result.set(Facet::kCuda, cuda_fact(python, gpu));
  return result;
}

}  // namespace inductorfs::fingerprint
