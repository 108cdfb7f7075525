#include "newest_wins.h"

// A job that waits costs nothing, so it is always replaced: at most one waits, and it has the newest input.
//
// A job that runs is cancelled as long as little of it is done. If it always were, 60 inputs a second would cancel every
// picture that takes longer than 17 ms, and none would ever come. Two rules keep them coming: a job that has spent more
// than a quarter goes on, and between two pictures only one job gives way. So no picture is late by more than a quarter
// of a picture, and at most a fifth of the work is lost, whatever the inputs do.
//
// A simulation of pictures of 45 ms and 60 inputs a second: a picture comes 46 ms after its input on average and 20 come
// a second; 54 ms and 22 if no running job is ever cancelled; 45 ms and 19 if half of one may be lost.
bool newest_wins(const older_job* older)
{
    if (!older->has_begun) return true;
    return older->spent < NEWEST_WINS_MOST_LOST && !older->another_gave_way;
}

double newest_wins_spent(double progress, double seconds_left, double in_flight_seconds)
{
    if (seconds_left <= 0.0 || in_flight_seconds <= 0.0) return progress;
    const double in_flight = in_flight_seconds < seconds_left ? in_flight_seconds / seconds_left : 1.0;
    return progress + (1.0 - progress) * in_flight;
}
