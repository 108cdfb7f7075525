// The forms of weights: how much memory they take, and how they are made.
#ifndef SUMI_DEVICE_WEIGHT_FORMS_H
#define SUMI_DEVICE_WEIGHT_FORMS_H
#include "device/form.h"
#include "plan/weight.h"

uint64_t sumi_device_form_bytes(const sumi_weight* weight, sumi_device_form form); // on the device, rounded up to 512
uint64_t sumi_device_pinned_row_bytes(const sumi_weight* weight, sumi_device_form form); // see pinned.h
// The addresses of a form that begins at `address`.
sumi_device_weight sumi_device_weight_at(uint64_t address, const sumi_weight* weight, sumi_device_form form);
// Whether the CPU can make the bytes of the form: these equal the file's, except for the order of rows, or are the
// rounded sums of a weight with a change.
bool sumi_device_form_is_made_on_cpu(const sumi_weight* weight, sumi_device_form form);

// Whether the form stores the tensor's elements as the file has them.
bool sumi_device_keeps_bytes(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor);
uint64_t sumi_device_made_row_bytes(const sumi_weight* weight, sumi_device_form form); // for forms that the CPU makes
// The norm whose weight balances the form (balance.h). NULL: the form is not balanced.
const sumi_weight* sumi_device_form_balance(const sumi_weight* weight, sumi_device_form form);
// Bytes of the balance, which is uploaded before the first rows of the form. 0: there is none.
uint64_t sumi_device_balance_bytes(const sumi_weight* weight, sumi_device_form form);
#endif
