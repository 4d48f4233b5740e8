# SPDX-License-Identifier: Apache-2.0
# Completions of inductorfs for bash. They ask "inductorfs COMMAND --help", so that they know the options of the program that is run.

# Names of mounts are shown quoted and never evaluated, because every user may make one.
_inductorfs_mountpoints() {
  local root point rest quoted line table
  mapfile -t table </proc/self/mountinfo  # "read" seeks back after each line, to where another one is by then
  for line in "${table[@]}"; do
    read -r _ _ _ root point rest <<<"$line"
    [[ $root == / && $rest == *' - fuse.inductorfs '* ]] || continue
    printf -v point %b "${point//\\/\\0}"
    printf -v quoted %q "$point"
    [[ $point == "$1"* || $quoted == "$1"* ]] && COMPREPLY+=("$quoted")
  done
}

_inductorfs_files() {
  local found
  compopt -o filenames 2>/dev/null
  mapfile -t found < <(compgen "$1" -- "$2")
  COMPREPLY+=("${found[@]}")
}

_inductorfs() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i line section= kind= words= options= name names takes
  local shown='^  ([^ {]+)( ([A-Z]+)(:\{([^}]*)\})?)?'
  COMPREPLY=()
  # bash makes "--option=value" three words.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] || { command=${COMP_WORDS[i]}; break; }
  done
  while IFS= read -r line; do
    [[ $line =~ ^[A-Z][A-Za-z]*: ]] && section=$line
    [[ $line =~ $shown ]] || continue
    names=${BASH_REMATCH[1]//,/ } takes=${BASH_REMATCH[5]//,/ }
    case $section in
      Subcommands:) words+="$names " ;;
      Positionals:) [[ -n $words ]] || words=${takes:-$names} ;;
      *)
        options+="$names "
        for name in $names; do
          [[ $prev != "$name" ]] || kind=${takes:-${BASH_REMATCH[3]}}
        done
        ;;
    esac
  done < <("${COMP_WORDS[0]}" ${command:+"$command"} --help 2>/dev/null)
  case $kind in
    FILE | PATH) _inductorfs_files -f "$cur" ;;
    DIR) _inductorfs_files -d "$cur" ;;
    *[a-z]*) mapfile -t COMPREPLY < <(compgen -W "$kind" -- "$cur") ;;
  esac
  [[ -z $kind ]] || return
  if [[ -z $command ]]; then
    words+="--help --version"
  elif [[ $cur == -* ]]; then
    words=$options
  fi
  case $words in
    MOUNTPOINT) if [[ $command == mount ]]; then _inductorfs_files -d "$cur"; else _inductorfs_mountpoints "$cur"; fi ;;
    PATH) _inductorfs_mountpoints "$cur"; [[ ${#COMPREPLY[@]} -gt 0 ]] || _inductorfs_files -f "$cur" ;;
    *[a-z]*) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
  esac
}

complete -F _inductorfs inductorfs
