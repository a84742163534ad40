_trainopt() {
  local command candidate word=$words[CURRENT]
  local -a with_value without
  command=$(_trainopt_command ${words[2,CURRENT-1]})
  for candidate in ${=$(_trainopt_words "$word" "$command")}; do
    if [[ $candidate == *= ]]; then with_value+=$candidate; else without+=$candidate; fi
  done
  compadd -S '' -a with_value
  compadd -a without
  if [[ $word == *=* ]]; then
    compset -P '*='
    _files
  elif [[ -n $command ]]; then
    _files
  fi
}
compdef _trainopt trainopt
