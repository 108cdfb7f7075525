using UnrealBuildTool;

public class SumiUnreal : ModuleRules
{
	public SumiUnreal(ReadOnlyTargetRules Target) : base(Target)
	{
		PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
		// No CppStandard: the engine's own is C++17 or newer in every version that this was written for, and from 5.6 on C++17 is refused.
		PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "DeveloperSettings", "Engine", "RHI" });
		PrivateDependencyModuleNames.AddRange(new[] { "RenderCore", "SumiLibrary" });
		PublicIncludePathModuleNames.Add("SumiLibrary"); // our headers name the types of sumi.h; who includes them links nothing of it
		if (Target.Platform == UnrealTargetPlatform.Win64) // SumiRHITexture
		{
			PublicDependencyModuleNames.Add("D3D12RHI");
			AddEngineThirdPartyPrivateStaticDependencies(Target, "DX12");
		}
	}
}
