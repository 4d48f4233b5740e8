// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "inductorfs/fingerprint/fingerprint.h"

/// Environment variables that change what torch or Triton generate, but are missing in a key of theirs. Pure; safe for
/// concurrent use. Which variables were looked at and left out, and why: docs/decisions/0016.
namespace inductorfs::fingerprint {

/// Which values mean the same as each other, or as unset.
enum class Reading {
  kOff,         ///< a switch that is off when unset: Triton takes on, true, yes and 1, all else is off
  kOn,          ///< as kOff, but on when unset
  kSwitch,      ///< a switch of three states: unset lets the code choose; other than a switch's words it is a text
  kText,        ///< taken as it is; empty is the same as unset
  kPasses,      ///< on for everything or a list of names; off and empty are the same as unset
  kCapability,  ///< one of a few words; any other is ignored with a warning
  kTool,        ///< the path of a program; that of one which lies in the packages themselves is the same as unset
};

struct Variable {
  std::string_view name;    ///< whole, or with a final `*`: every variable that begins so
  std::string_view effect;  ///< what another value does to an artefact
  std::string_view source;  ///< where torch or Triton reads it, and which key leaves it out: file and function
  Reading reading;
  /// Matters to families that depend on the environment and on all of these too: a variable that is in Triton's key,
  /// but in none of torch's, is no reason to keep a Triton kernel private.
  std::span<const Facet> with;
};
[[nodiscard]] std::span<const Variable> variables();
/// The row for a variable; nullptr when it is none of them.
[[nodiscard]] const Variable* find_variable(std::string_view name);
[[nodiscard]] bool matters(const Variable& variable, std::span<const Facet> facets);

/// Name and canonical value of each variable of variables() that is set to anything but what is the same as unset.
[[nodiscard]] std::map<std::string, std::string> environment_values(
    const std::map<std::string, std::string>& environment);
/// Canonical text of the environment facet: one line name=value for each of environment_values(), in name order;
/// "none" when there is none.
[[nodiscard]] std::string environment_text(const std::map<std::string, std::string>& environment);
/// The inverse of environment_text() for its canonical values.
[[nodiscard]] std::map<std::string, std::string> environment_from_text(std::string_view text);

}  // namespace inductorfs::fingerprint
