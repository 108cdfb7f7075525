// The commands, one file each. argv holds the words after the command's name. Each command returns the exit code.
#ifndef COMMANDS_H
#define COMMANDS_H
#include "args.h"

int generate_main(int argc, char** argv);
int encode_main(int argc, char** argv);
int inspect_main(int argc, char** argv);
int tokenize_main(int argc, char** argv);
int xml_main(int argc, char** argv);
int bench_main(int argc, char** argv);
int info_main(int argc, char** argv);
int version_main(int argc, char** argv);
#endif
