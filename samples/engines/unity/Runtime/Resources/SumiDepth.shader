// Copies a depth texture to a texture of one float, as it is: SumiDepth.cs. In Resources, so that players have it.
Shader "Hidden/Sumi/Depth"
{
    Properties { _MainTex("Depth", 2D) = "white" {} }
    SubShader
    {
        Cull Off ZWrite Off ZTest Always
        Pass
        {
            HLSLPROGRAM
            #pragma vertex vert_img
            #pragma fragment frag
            #include "UnityCG.cginc"
            sampler2D_float _MainTex;

            float4 frag(v2f_img i) : SV_Target { return float4(tex2D(_MainTex, i.uv).r, 0, 0, 1); }
            ENDHLSL
        }
    }
    Fallback Off
}
