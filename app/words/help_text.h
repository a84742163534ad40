// How --help reads: lines of at most 80 columns, broken between words, then an example and the exit codes.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace trainopt {

/// For the program and all its commands, once they are added.
void shape_help(CLI::App& program);

}  // namespace trainopt
