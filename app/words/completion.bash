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
  elif [[ $word != -* && -n $(_trainopt_recipes_and_keys "$command") ]]; then
    COMPREPLY+=($(compgen -d -- "$word") $(compgen -f -- "$word" | grep -E '\.ya?ml$'))
  fi
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -o filenames -F _trainopt trainopt
