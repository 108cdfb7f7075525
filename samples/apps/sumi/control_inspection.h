// What sumi inspect tells of a control net.
#ifndef CONTROL_INSPECTION_H
#define CONTROL_INSPECTION_H
#include "inspection.h"

// Prints the control net at in->path, as text or JSON. Returns an exit code, or -1 if it is none.
int inspect_control(inspection* in);
#endif
