#include "app/program.h"

int main(int argc, char** argv) { return trainopt::run_program(argc, argv); }
