_trainopt() {
  local command candidate
  local -a with_value without
  command=$(_trainopt_command ${words[2,CURRENT-1]})
  for candidate in ${=$(_trainopt_words "$words[CURRENT]" "$command")}; do
    if [[ $candidate == *= ]]; then with_value+=$candidate; else without+=$candidate; fi
  done
  compadd -S '' -a with_value
  compadd -a without
  [[ -z $(_trainopt_recipes_and_keys "$command") ]] || _files -g '*.(yaml|yml)'
}
compdef _trainopt trainopt
