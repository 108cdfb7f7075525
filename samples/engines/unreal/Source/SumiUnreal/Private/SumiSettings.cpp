#include "SumiSettings.h"
#include "SumiSession.h"

// The settings are converted by their numbers.
static_assert(static_cast<int>(ESumiWeights::Auto) == SUMI_WEIGHTS_AUTO, "");
static_assert(static_cast<int>(ESumiWeights::Bf16) == SUMI_WEIGHTS_BF16, "");
static_assert(static_cast<int>(ESumiWeights::Fp8) == SUMI_WEIGHTS_FP8, "");
static_assert(static_cast<int>(ESumiWeights::AsStored) == SUMI_WEIGHTS_AS_STORED, "");
static_assert(static_cast<int>(ESumiWeights::Int8) == SUMI_WEIGHTS_INT8, "");
static_assert(static_cast<int>(ESumiWeights::Int4) == SUMI_WEIGHTS_INT4, "");
static_assert(static_cast<int>(ESumiAttention::Auto) == SUMI_ATTENTION_AUTO, "");
static_assert(static_cast<int>(ESumiAttention::Bf16) == SUMI_ATTENTION_BF16, "");
static_assert(static_cast<int>(ESumiAttention::EightBit) == SUMI_ATTENTION_8BIT, "");

FName USumiSettings::GetCategoryName() const { return TEXT("Plugins"); }
