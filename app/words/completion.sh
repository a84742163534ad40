# The command among the words, such as data bench.
_trainopt_command() {
  local word found=''
  for word in "$@"; do
    case " $(_trainopt_commands "$found") " in
      *" $word "*) found=${found:+$found }$word ;;
    esac
  done
  echo "$found"
}
# What may stand in place of the word $1 after the command $2.
_trainopt_words() {
  case "$2" in
    help) _trainopt_commands '' ;;
    completion) echo 'bash zsh fish' ;;
    launch) _trainopt_recipes_and_keys run ;;
  esac
  case "$1" in
    -*) _trainopt_options "$2"; _trainopt_options '' ;;
    *=*) _trainopt_values "${1%%=*}" ;;
    *) _trainopt_commands "$2"; _trainopt_recipes_and_keys "$2" ;;
  esac
}
