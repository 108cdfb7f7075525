// A stand-in: see README.md. What our .Build.cs files name of Unreal's build tool, and a program that prints what they say.
// usage: BuildRules.exe PLATFORM PLUGIN_FOLDER [PROJECT_FOLDER]
using System;
using System.Collections.Generic;
using System.IO;

namespace UnrealBuildTool
{
	public enum UnrealTargetPlatform { Win64, Linux, Mac }
	public enum StagedFileType { UFS, NonUFS }

	public class FileReference
	{
		public string FullName;
		public DirectoryReference Directory { get { return new DirectoryReference { FullName = Path.GetDirectoryName(FullName) }; } }
	}
	public class DirectoryReference { public string FullName; }

	public class ReadOnlyTargetRules
	{
		public UnrealTargetPlatform Platform;
		public FileReference ProjectFile; // null without a project
	}

	public class RuntimeDependencyList
	{
		public List<string> Lines = new List<string>();
		public void Add(string Target, string Source) { Lines.Add(Target + " < " + Source); }
		public void Add(string Target, StagedFileType Type) { Lines.Add(Target + " " + Type); }
	}

	public class ModuleRules
	{
		public enum PCHUsageMode { UseExplicitOrSharedPCHs }
		public enum ModuleType { CPlusPlus, External }
		public ModuleType Type;
		public PCHUsageMode PCHUsage;
		public List<string> PublicDependencyModuleNames = new List<string>(), PrivateDependencyModuleNames = new List<string>(), PublicIncludePathModuleNames = new List<string>(),
			PublicSystemIncludePaths = new List<string>(), PublicAdditionalLibraries = new List<string>(), PublicDefinitions = new List<string>(), Engine = new List<string>();
		public RuntimeDependencyList RuntimeDependencies = new RuntimeDependencyList();
		public ModuleRules(ReadOnlyTargetRules Target) { }
		public string ModuleDirectory { get { return Path.Combine(Program.Plugin, "Source", GetType().Name == "SumiLibrary" ? "ThirdParty/Sumi" : GetType().Name); } }
		public void AddEngineThirdPartyPrivateStaticDependencies(ReadOnlyTargetRules Target, params string[] Names) { Engine.AddRange(Names); }
	}

	static class Program
	{
		public static string Plugin;

		static void Print(ModuleRules Rules)
		{
			Action<string, IEnumerable<string>> Each = (What, Names) => { foreach (string Name in Names) Console.WriteLine(Rules.GetType().Name + " " + What + " " + Name); };
			Each("type", new[] { Rules.Type.ToString() });
			Each("public", Rules.PublicDependencyModuleNames);
			Each("private", Rules.PrivateDependencyModuleNames);
			Each("headers", Rules.PublicIncludePathModuleNames);
			Each("engine", Rules.Engine);
			Each("define", Rules.PublicDefinitions);
			Each("include", Rules.PublicSystemIncludePaths);
			Each("link", Rules.PublicAdditionalLibraries);
			Each("stage", Rules.RuntimeDependencies.Lines);
		}

		static void Main(string[] Arguments)
		{
			Plugin = Path.GetFullPath(Arguments[1]);
			var Target = new ReadOnlyTargetRules { Platform = (UnrealTargetPlatform)Enum.Parse(typeof(UnrealTargetPlatform), Arguments[0]) };
			if (Arguments.Length > 2) Target.ProjectFile = new FileReference { FullName = Path.Combine(Path.GetFullPath(Arguments[2]), "Game.uproject") };
			Print(new SumiUnreal(Target));
			Print(new SumiLibrary(Target));
		}
	}
}
