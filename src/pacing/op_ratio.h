// Corrects predictions made from a backend's rates by the ratio of measured to predicted times of each kind of op.
#ifndef SUMI_PACING_OP_RATIO_H
#define SUMI_PACING_OP_RATIO_H

// The ratio after another measurement. 0: there was none before. `share` is the predicted part of the measured time
// that ops of this kind take.
float sumi_op_ratio_learn(float ratio, double measured_ratio, double share);
// The factor for a prediction that was made with the ratio made_with. recent_ratio 0: not measured, the factor is 1.
float sumi_op_ratio_correction(float recent_ratio, float made_with);
#endif
