using System.IO;
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
		StageModels(Target);
	}

	// Checkpoints are loose files in Content/Sumi, not assets: a packaged game finds them at the same place beside its paks.
	void StageModels(ReadOnlyTargetRules Target)
	{
		if (Target.ProjectFile == null) return; // the plug-in is packaged by itself
		string Models = Path.Combine(Target.ProjectFile.Directory.FullName, "Content", "Sumi");
		if (!Directory.Exists(Models)) return;
		foreach (string Name in Directory.GetFiles(Models, "*", SearchOption.AllDirectories))
		{
			if (Name.EndsWith(".uasset") || Name.EndsWith(".umap")) continue; // the cooker's
			RuntimeDependencies.Add(Name, StagedFileType.NonUFS);
		}
	}
}
