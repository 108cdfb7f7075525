#!/usr/bin/env python3
"""Packs the package for .NET; build_nupkg.sh calls it. usage: make_nupkg.py ASSEMBLY OUT LIBRARY..

ASSEMBLY is Sumi.Runtime.dll, and each LIBRARY libsumi.so or sumi.dll. Without network and without NuGet: a package is a zip with a
manifest and the parts of an Open Packaging Convention. The same input gives the same bytes; Debian's mcs compiles an assembly of the same sources to the same bytes too.
In the environment:
  SOURCE_DATE_EPOCH  the time of the files (1980)
  NOTICES            a folder with the licence notices of libraries that are inside, by their names (utf8proc, zlib, mingw-w64), if
                     they are not where Debian keeps them
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Dict, List

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
from native import check, inspect, notices, read, version, write_zip  # noqa: E402

# Where a program finds the library: the names that .NET gives to systems.
PLACES = {"linux x86_64": "linux-x64/native/libsumi.so", "linux aarch64": "linux-arm64/native/libsumi.so", "windows x86_64": "win-x64/native/sumi.dll"}
TYPES = {"rels": "application/vnd.openxmlformats-package.relationships+xml", "psmdcp": "application/vnd.openxmlformats-package.core-properties+xml"}
DESCRIPTION = "Images from diffusion transformers inside a program: engine, models and jobs as C# objects, with the native library of sumi"

MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata>
    <id>Sumi</id>
    <version>{version}</version>
    <authors>the sumi authors</authors>
    <requireLicenseAcceptance>false</requireLicenseAcceptance>
    <license type="expression">MIT</license>
    <readme>README.md</readme>
    <description>{description}</description>
    <dependencies>
      <group targetFramework=".NETStandard2.0" />
    </dependencies>
  </metadata>
</package>
"""
RELATIONS = """<?xml version="1.0" encoding="utf-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
  <Relationship Type="http://schemas.microsoft.com/packaging/2010/07/manifest" Target="/Sumi.nuspec" Id="R1" />
  <Relationship Type="http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties" Target="/{properties}" Id="R2" />
</Relationships>
"""
PROPERTIES = """<?xml version="1.0" encoding="utf-8"?>
<coreProperties xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns="http://schemas.openxmlformats.org/package/2006/metadata/core-properties">
  <dc:creator>the sumi authors</dc:creator>
  <dc:description>{description}</dc:description>
  <dc:identifier>Sumi</dc:identifier>
  <version>{version}</version>
</coreProperties>
"""


def main(assembly: str, out: str, libraries: List[str]) -> None:
    number = version()
    files: Dict[str, bytes] = {
        "lib/netstandard2.0/Sumi.Runtime.dll": read(assembly),
        "README.md": read(os.path.join(HERE, "README.md")),
        "licenses/LICENSE.txt": read(os.path.join(ROOT, "LICENSE")),
    }
    for path in libraries:
        found = inspect(path)
        check(found)
        place = "runtimes/" + PLACES[f"{found.system} {found.machine}"]
        if place in files:
            raise SystemExit(f"{path} is a second library for {place.split('/')[1]}: give one for each system")
        files[place] = found.program
        files.update({f"licenses/{name}.txt": text for name, text in notices(found.program).items()})
    about = {"version": number, "description": DESCRIPTION}
    properties = f"package/services/metadata/core-properties/{hashlib.sha256(number.encode()).hexdigest()[:32]}.psmdcp"
    kinds = sorted({name.rsplit(".", 1)[1] for name in files} | {"nuspec"})
    types = "".join(f'  <Default Extension="{kind}" ContentType="{TYPES.get(kind, "application/octet")}" />\n' for kind in [*TYPES, *kinds])
    front = {
        "_rels/.rels": RELATIONS.format(properties=properties),
        "Sumi.nuspec": MANIFEST.format(**about),
        "[Content_Types].xml": f'<?xml version="1.0" encoding="utf-8"?>\n<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">\n{types}</Types>\n',
        properties: PROPERTIES.format(**about),
    }
    names = [*front, *sorted(files)]
    files.update({name: text.encode() for name, text in front.items()})
    package = os.path.join(out, f"Sumi.{number}.nupkg")
    write_zip(package, files, names)
    print(package)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
