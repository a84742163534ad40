_trainopt() {
  local line=${COMP_LINE:0:COMP_POINT} word command
  local -a words
  read -r -a words <<< "$line"
  word=${line##*[[:space:]]}
  command=$(_trainopt_command "${words[@]:1}")
  COMPREPLY=($(compgen -W "$(_trainopt_words "$word" "$command")" -- "$word"))
  if [[ $word == *=* ]]; then
    # bash replaces only what follows its last word break.
    [[ $COMP_WORDBREAKS != *=* ]] || COMPREPLY=("${COMPREPLY[@]#*=}")
    [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "${word#*=}"))
  elif [[ $word != -* && -n $command ]]; then
    local -a files=($(compgen -f -- "$word"))
    # Only without other words may readline take them all for files: it would quote the = of a key.
    [[ ${#COMPREPLY[@]} -gt 0 || ${#files[@]} -eq 0 ]] || compopt -o filenames 2>/dev/null
    COMPREPLY+=("${files[@]}")
  fi
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -F _trainopt trainopt
