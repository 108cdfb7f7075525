// Links sumi as a static library. (The module is not called Sumi: Unreal would define SUMI_API for it, which is the C header's.) Put its parts here, as built by the project's own build:
//
//   ThirdParty/sumi/include/sumi.h
//   ThirdParty/sumi/lib/Linux/libsumi.a, libutf8proc.a, libz.a      (position independent)
//   ThirdParty/sumi/lib/Win64/sumi.lib, utf8proc.lib, zlib.lib
using System.IO;
using UnrealBuildTool;

public class SumiUnreal : ModuleRules
{
	public SumiUnreal(ReadOnlyTargetRules Target) : base(Target)
	{
		PCHUsage = PCHUsageMode.UseExplicitOrSharedPCHs;
		CppStandard = CppStandardVersion.Cpp17;
		bEnableExceptions = false;
		PublicDependencyModuleNames.AddRange(new[] { "Core", "CoreUObject", "Engine", "RHI", "RenderCore" });
		if (Target.Platform == UnrealTargetPlatform.Win64) // SumiRHITexture
		{
			PublicDependencyModuleNames.Add("D3D12RHI");
			AddEngineThirdPartyPrivateStaticDependencies(Target, "DX12");
		}

		string Root = Path.GetFullPath(Path.Combine(ModuleDirectory, "..", "..", "ThirdParty", "sumi"));
		PublicSystemIncludePaths.Add(Path.Combine(Root, "include"));
		if (Target.Platform == UnrealTargetPlatform.Win64)
		{
			foreach (string Name in new[] { "sumi.lib", "utf8proc.lib", "zlib.lib" })
				PublicAdditionalLibraries.Add(Path.Combine(Root, "lib", "Win64", Name));
		}
		else
		{
			foreach (string Name in new[] { "libsumi.a", "libutf8proc.a", "libz.a" }) // zlib is only wanted by builds with the CUDA backend
				PublicAdditionalLibraries.Add(Path.Combine(Root, "lib", "Linux", Name));
		}
	}
}
