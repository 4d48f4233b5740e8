// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "inductorfs/fingerprint/fingerprint.h"

/// Environment variables that change what torch or Triton generate, but are missing in one of their keys. The functions
/// are pure, and safe for concurrent use. docs/decisions/0016 says which other variables were examined and left out,
/// and why.
namespace inductorfs::fingerprint {

/// Says which values of a variable mean the same as each other, or the same as unset.
enum class Reading {
  kOff,          ///< a switch that is off when unset: Triton takes on, true, yes and 1; everything else is off
  kOn,           ///< as kOff, but on when unset
  kSwitch,       ///< a switch of three states: unset lets the code choose, empty is off; another word is a text
  kTorchOff,     ///< a switch of torch's C++ code: 1 is on; everything else is the same as unset
  kTorchSwitch,  ///< as kTorchOff, but of three states: 0 is not the same as unset
  kNumber,       ///< a whole number as Python's int() reads it; 0 is the same as unset; another word is a text
  kText,         ///< taken as it is; empty is the same as unset
  kPasses,       ///< "on" for everything, or a list of names; off and empty are the same as unset
  kCapability,   ///< one of a few words; any other is ignored with a warning
  kTool,         ///< the path of a program; a path inside the packages themselves is the same as unset
};

struct Variable {
  std::string_view name;    ///< the whole name, or with a final `*` every variable that begins so
  std::string_view effect;  ///< what another value does to an artefact
  std::string_view source;  ///< where torch or Triton reads it, and which key leaves it out: file and function
  Reading reading;
  /// The variable matters to a family that depends on the environment and on all of these facets: a variable that is in
  /// Triton's key, but in none of torch's, is no reason to keep a Triton kernel private.
  std::span<const Facet> with;
};
[[nodiscard]] std::span<const Variable> variables();
/// Returns the row for a variable, or nullptr when no row covers it.
[[nodiscard]] const Variable* find_variable(std::string_view name);
[[nodiscard]] bool matters(const Variable& variable, std::span<const Facet> facets);

/// Returns name and canonical value of each variable of variables() whose value does not mean the same as unset.
[[nodiscard]] std::map<std::string, std::string> environment_values(
    const std::map<std::string, std::string>& environment);
/// Returns the canonical text of the environment facet: one line name=value for each of environment_values(), in name
/// order, or "none" when there are no such values.
[[nodiscard]] std::string environment_text(const std::map<std::string, std::string>& environment);
/// Returns the canonical values that environment_text() wrote.
[[nodiscard]] std::map<std::string, std::string> environment_from_text(std::string_view text);

}  // namespace inductorfs::fingerprint
