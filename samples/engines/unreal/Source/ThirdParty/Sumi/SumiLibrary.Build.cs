// The C library. SumiUnreal alone links it; other modules call SumiUnreal and use the header's types. (No module is called Sumi: Unreal would define SUMI_API for it, which is the header's.) Its parts, which samples/engines/unreal/install.sh copies here, all of one version:
//
//   include/sumi.h, sumi_xml.h
//   lib/Linux/libsumi.a           premake5 --bundle: utf8proc and zlib are inside, under local names, for the engine links a zlib of its own
//   lib/Win64/sumi.dll, sumi.lib  premake5 --shared: for the same reason a DLL, which shows the header's functions alone, and its import library
using System.IO;
using UnrealBuildTool;

public class SumiLibrary : ModuleRules
{
	public SumiLibrary(ReadOnlyTargetRules Target) : base(Target)
	{
		Type = ModuleType.External;
		PublicSystemIncludePaths.Add(Path.Combine(ModuleDirectory, "include"));
		if (Target.Platform == UnrealTargetPlatform.Win64)
		{
			string Folder = Path.Combine(ModuleDirectory, "lib", "Win64");
			PublicAdditionalLibraries.Add(Path.Combine(Folder, "sumi.lib"));
			// Copied beside the module that links it, where the engine looks for the DLLs of its modules, and staged.
			RuntimeDependencies.Add("$(BinaryOutputDir)/sumi.dll", Path.Combine(Folder, "sumi.dll"));
		}
		else if (Target.Platform == UnrealTargetPlatform.Linux)
		{
			PublicAdditionalLibraries.Add(Path.Combine(ModuleDirectory, "lib", "Linux", "libsumi.a"));
		}
	}
}
